"""The facts of a host for a check of the setup are complete, also about what it lacks."""

import os
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import asloaded
import pytest
from saltvirt.certificates.host import installed
from saltvirt.checks.setup.host import facts
from saltvirt.checks.setup.master import setupcloud
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.core import filecontent, wire
from saltvirt.core.errors import BadConfig

# Each address of 127.0.0.0/8 is this machine's; the option's check knows only the first one.
HERE = "127.0.0.2"


@pytest.fixture
def options(host, monkeypatch):
    """Settings of a host with libvirt's test driver, which reports no free memory."""
    monkeypatch.setattr(facts.inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    monkeypatch.setattr(facts.inspect.query, "node", lambda _conn: {"phymemory": 16384, "cpus": 4})
    return replace(host, uri="test:///default")


@pytest.fixture
def listening_port():
    """A port of this machine on which a socket listens."""
    with socket.socket() as listener:
        listener.bind((HERE, 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port():
    """A port of this machine that is bound, and on which no socket listens."""
    with socket.socket() as taken_socket:
        taken_socket.bind((HERE, 0))
        yield taken_socket.getsockname()[1]


def read_facts(options, basepath="/nowhere", peers=None, misspelt=None, **opts):
    """Return the facts of a host as the master reads them."""
    minion_opts = {"id": "hyper1", "hash_type": "sha256", "master": HERE, **opts}
    host_facts = facts.read_host_facts(
        minion_opts, options, str(basepath), peers or {}, misspelt or {}
    )
    plain_facts = wire.plain(host_facts)
    return wire.read("hyper1", "virt.setup_facts", SetupFacts, plain_facts)


def test_unread_options_are_named(options):
    assert read_facts(options, misspelt={"tag": "tags"}).misspelt == {"tag": "tags"}


def test_machines_are_distinguished_without_their_ids(options, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "_MACHINE", tmp_path / "machine-id")
    assert read_facts(options).machine == ""
    host_facts = set()
    for machine in ("11111111111111111111111111111111", "22222222222222222222222222222222"):
        (tmp_path / "machine-id").write_text(f"{machine}\n")
        digest = read_facts(options).machine
        assert machine not in digest
        host_facts.add(digest)
    assert len(host_facts) == 2


def test_the_facts_are_those_of_the_host(options):
    start_s = time.time()
    host_facts = read_facts(options)

    assert host_facts.code == filecontent.of_code() and start_s <= host_facts.clock_s <= time.time()
    assert host_facts.hash_type == "sha256" and host_facts.unreadable == {}
    assert (
        host_facts.libvirt is host_facts.why_not is host_facts.pool is host_facts.no_master is None
    )
    assert host_facts.info is not None and "test" in host_facts.info.vms
    # The tests' own root has both.
    assert host_facts.lacking == []
    has_flag = host_facts.virtualization in Path("/proc/cpuinfo").read_text().split()
    assert has_flag is bool(host_facts.virtualization)
    assert host_facts.has_kvm is Path("/dev/kvm").exists()


def test_a_host_without_libvirt_has_all_other_facts(options):
    host_facts = read_facts(replace(options, uri="qemu+unix:///system?socket=/nowhere"))

    assert "libvirt does not answer at" in host_facts.libvirt and host_facts.info is None
    assert host_facts.code == filecontent.of_code() and host_facts.lacking == []


def test_an_error_of_libvirt_is_reported_in_its_words(options, monkeypatch):
    def refuse(_conn, _options):
        raise OSError("the disk is gone")

    monkeypatch.setattr(facts.inspect, "host_info", refuse)
    host_facts = read_facts(options)

    assert (host_facts.libvirt, host_facts.info, host_facts.why_not) == (
        None,
        None,
        "the disk is gone",
    )


def test_a_wrong_option_for_libvirts_facts_is_reported_separately(options, monkeypatch):
    def refuse(_conn, _options):
        raise BadConfig("option virt:cpu_ratio: expected x")

    monkeypatch.setattr(facts.inspect, "host_info", refuse)
    host_facts = read_facts(options)

    assert (host_facts.why_not, host_facts.bad_option) == (
        None,
        "option virt:cpu_ratio: expected x",
    )


def test_a_wrong_option_is_the_answer():
    module = asloaded.module(
        "_modules/virt_query.py", id="hyper1", master=HERE, pki_dir="/nowhere", virt="kvm"
    )

    with pytest.raises(BadConfig) as refused:
        setupcloud.read_answer("hyper1", module.setup_facts())
    assert str(refused.value) == "option virt: expected a mapping, found 'kvm'"


def test_tools_that_are_missing_are_named(options, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert read_facts(options).lacking == ["qemu-img", "prlimit"]


@pytest.mark.parametrize(("pool", "reason"), [("default-pool", None), ("fast", "no pool 'fast'")])
def test_the_pool_in_the_options_is_checked(options, pool, reason):
    host_facts = read_facts(replace(options, storagepool=pool))

    assert host_facts.storagepool == pool and "default-pool" in host_facts.info.storage.pools
    assert host_facts.pool is None if reason is None else reason in host_facts.pool


def test_the_masters_port_is_tried(options, listening_port, closed_port):
    assert read_facts(options, publish_port=listening_port).masters == {HERE: None}
    assert read_facts(options, publish_port=closed_port).masters == {HERE: "Connection refused"}


def test_guests_have_their_own_master(options, listening_port):
    seed = {"master": [HERE, f"{HERE}:4506", "no-such-name.invalid"]}

    host_facts = read_facts(
        replace(options, seed=seed), master="localhost", publish_port=listening_port
    ).masters

    assert host_facts.pop("no-such-name.invalid")
    assert host_facts == {HERE: None, f"{HERE}:4506": None}


@pytest.mark.parametrize(
    "master",
    [
        *("localhost", "127.0.0.1", "", None, "127.0.1.1", "LocalHost:4506", "127.0.0.1:4506"),
        *("[::1]:4506", "ip6-localhost", ["localhost"], ["127.0.0.1", "::1"], []),
    ],
    ids=str,
)
def test_a_loopback_address_is_no_master_for_guests(options, master):
    host_facts = read_facts(options, master=master)

    assert "the guest cannot reach a master" in host_facts.no_master and host_facts.masters == {}


def test_addresses_without_an_answer_end_in_a_timeout():
    begun = time.monotonic()
    # RFC 5737 reserves these addresses for documentation: no machine has them.
    addresses = [(f"192.0.2.{number}", 16514) for number in range(1, 9)]

    reasons = facts.explain_unreached(addresses, limit_s=0.3)

    assert list(reasons) == addresses and all(reasons.values())
    assert time.monotonic() - begun < 3


def test_libvirts_port_is_checked_here_and_at_other_hosts(options, listening_port, monkeypatch):
    monkeypatch.setattr(facts, "TLS_PORT", listening_port)
    peers = {"hyper1": ["192.0.2.1"], "hyper2": ["127.0.0.9", HERE], "hyper3": ["127.0.0.9"]}

    moving = read_facts(options, peers=peers).moving

    assert moving.listens
    assert moving.peers == {"hyper2": None, "hyper3": "Connection refused"}


def test_unresolved_ids_of_other_hosts_are_named(options, monkeypatch):
    def looked_up(name, *_args, **_kwargs):
        if name == "hyper3":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # For a move libvirt gets a minion id, and no address.
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)

    names = read_facts(
        options, peers={"hyper1": [], "hyper2": [], "hyper3": []}, master=[]
    ).moving.names

    assert names == {"hyper2": None, "hyper3": "Name or service not known"}


def test_a_name_without_an_answer_ends_in_a_timeout(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: time.sleep(1))
    begun = time.monotonic()

    assert facts.explain_unresolved(["hyper2"], limit_s=0.1) == {"hyper2": "no answer"}
    assert time.monotonic() - begun < 0.9


@pytest.mark.parametrize(
    ("pillar", "folder"),
    [
        ({}, "/etc/pki"),
        ({"hypervisor": None}, "/etc/pki"),
        ({"hypervisor": {"keys": None}}, "/etc/pki"),
        ({"hypervisor": {"keys": {"basepath": "/srv/pki"}}}, "/srv/pki"),
    ],
    ids=str,
)
def test_empty_values_in_the_formulas_pillar_are_ignored(pillar, folder):
    module = asloaded.module("_modules/virt_query.py", id="hyper1", master=HERE, pki_dir="/nowhere")
    module.__pillar__ = pillar

    missing_certificates = module.setup_facts()["moving"]["certificates"]

    assert missing_certificates and all(
        path.startswith(f"{folder}/") for path in missing_certificates
    )


def test_libvirts_port_is_closed(options, closed_port, monkeypatch):
    monkeypatch.setattr(facts, "TLS_PORT", closed_port)

    assert not read_facts(options).moving.listens


def test_each_host_checks_three_others_and_is_checked_by_three():
    peers = {f"h{number}": [f"192.0.2.{number}"] for number in range(7)}

    near = {host: set(facts._near_addresses(host, peers)) for host in peers}

    assert near["h5"] == {"h6", "h0", "h1"}
    assert all(sum(host in its for its in near.values()) == 3 for host in peers)
    assert facts._near_addresses("h0", {"h0": ["192.0.2.1"], "h1": []}) == {}


def test_an_address_that_all_hosts_have_is_not_checked():
    peers = {"h0": ["192.0.2.1", "192.168.122.1"], "h1": ["192.168.122.1", "192.0.2.2"]}

    assert facts._near_addresses("h0", peers) == {"h1": [("192.0.2.2", facts.TLS_PORT)]}


def test_certificates_that_are_missing_are_named(options, tmp_path):
    places = installed.places(tmp_path)
    locations = [places[purpose] for purpose in installed.DEFAULT_PURPOSES]
    paths = sorted(
        str(path) for location in locations for path in (location.key, location.certificate)
    )
    assert read_facts(options, tmp_path).moving.certificates == paths

    for path in paths[1:]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("")
    assert read_facts(options, tmp_path).moving.certificates == paths[:1]


@pytest.fixture
def images():
    """A folder that all users can enter, unlike the folders of the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "vm/images").mkdir(parents=True)
        yield Path(folder) / "vm/images"


@pytest.mark.parametrize("user", ["nobody", "+65534", "65534"])
def test_a_folder_that_qemu_cannot_enter_is_named(images, user):
    assert facts.read_image_folder(str(images), {"user": user}).closed is None

    images.parent.chmod(0o700)
    host_facts = facts.read_image_folder(str(images), {"user": user})

    assert (host_facts.user, host_facts.closed, host_facts.why_not) == (
        "nobody",
        str(images.parent),
        None,
    )


def test_group_and_owner_of_a_folder_may_enter_it(images):
    os.chown(images, 65534, 0)
    images.chmod(0o100)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed is None
    os.chown(images, 0, 65534)
    images.chmod(0o710)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed is None
    images.chmod(0o700)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed == str(images)
    assert facts.read_image_folder(str(images), {"user": "root"}).closed is None


def test_a_missing_folder_is_no_fault(images):
    host_facts = facts.read_image_folder(str(images / "more/and/more"), {"user": "nobody"})

    assert (host_facts.why_not, host_facts.closed) == (None, None)


def test_a_file_in_its_place_is_named(images):
    (images / "file").write_text("")

    assert (
        facts.read_image_folder(str(images / "file"), {}).why_not
        == f"{images}/file is not a folder"
    )


def test_a_missing_user_is_not_guessed(images):
    host_facts = facts.read_image_folder(str(images), {"user": "no-such-user"})

    assert (host_facts.user, host_facts.closed) == (None, None)
