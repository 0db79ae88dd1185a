"""What a host says of itself to a check of the setup is what it has; whatever it lacks, it says."""

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

# Any of 127.0.0.0/8 is this machine's, and the option's check knows but the first.
HERE = "127.0.0.2"


@pytest.fixture
def options(host, monkeypatch):
    """Settings of a host whose libvirt is the test driver, which knows no free memory."""
    monkeypatch.setattr(facts.inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    monkeypatch.setattr(facts.inspect.query, "node", lambda _conn: {"phymemory": 16384, "cpus": 4})
    return replace(host, uri="test:///default")


@pytest.fixture
def listening():
    """A port of this machine where something listens."""
    with socket.socket() as one:
        one.bind((HERE, 0))
        one.listen()
        yield one.getsockname()[1]


@pytest.fixture
def closed():
    """A port of this machine that is taken, and where nothing listens."""
    with socket.socket() as one:
        one.bind((HERE, 0))
        yield one.getsockname()[1]


def told(options, basepath="/nowhere", peers=None, misspelt=None, **opts):
    """Return what a host says, as it comes to the master."""
    given = {"id": "hyper1", "hash_type": "sha256", "master": HERE, **opts}
    found = facts.read_host_facts(given, options, str(basepath), peers or {}, misspelt or {})
    said = wire.plain(found)
    return wire.read("hyper1", "virt.setup_facts", SetupFacts, said)


def test_a_host_says_which_options_nobody_reads(options):
    assert told(options, misspelt={"tag": "tags"}).misspelt == {"tag": "tags"}


def test_a_machine_is_told_apart_without_its_id(options, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "_MACHINE", tmp_path / "machine-id")
    assert told(options).machine == ""
    said = set()
    for machine in ("11111111111111111111111111111111", "22222222222222222222222222222222"):
        (tmp_path / "machine-id").write_text(f"{machine}\n")
        digest = told(options).machine
        assert machine not in digest
        said.add(digest)
    assert len(said) == 2


def test_a_host_says_what_it_has(options):
    before = time.time()
    said = told(options)

    assert said.code == filecontent.of_code() and before <= said.clock_s <= time.time()
    assert said.hash_type == "sha256" and said.unreadable == {}
    assert said.libvirt is said.why_not is said.pool is said.no_master is None
    assert said.info is not None and "test" in said.info.vms
    # The tests' own root has both.
    assert said.lacking == []
    has_flag = said.virtualization in Path("/proc/cpuinfo").read_text().split()
    assert has_flag is bool(said.virtualization)
    assert said.has_kvm is Path("/dev/kvm").exists()


def test_a_host_without_libvirt_says_all_else(options):
    said = told(replace(options, uri="qemu+unix:///system?socket=/nowhere"))

    assert "libvirt does not answer at" in said.libvirt and said.info is None
    assert said.code == filecontent.of_code() and said.lacking == []


def test_what_libvirt_cannot_say_is_said_in_its_words(options, monkeypatch):
    def refuse(_conn, _options):
        raise OSError("the disk is gone")

    monkeypatch.setattr(facts.inspect, "host_info", refuse)
    said = told(options)

    assert (said.libvirt, said.info, said.why_not) == (None, None, "the disk is gone")


def test_an_option_that_libvirts_answer_needs_is_named_apart(options, monkeypatch):
    def refuse(_conn, _options):
        raise BadConfig("option virt:cpu_ratio: expected x")

    monkeypatch.setattr(facts.inspect, "host_info", refuse)
    said = told(options)

    assert (said.why_not, said.bad_option) == (None, "option virt:cpu_ratio: expected x")


def test_an_option_that_cannot_be_used_is_the_answer():
    module = asloaded.module(
        "_modules/virt_query.py", id="hyper1", master=HERE, pki_dir="/nowhere", virt="kvm"
    )

    with pytest.raises(BadConfig) as refused:
        setupcloud.read_answer("hyper1", module.setup_facts())
    assert str(refused.value) == "option virt: expected a mapping, found 'kvm'"


def test_tools_that_are_missing_are_named(options, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert told(options).lacking == ["qemu-img", "prlimit"]


@pytest.mark.parametrize(("pool", "why"), [("default-pool", None), ("fast", "no pool 'fast'")])
def test_the_pool_of_the_options_is_looked_for(options, pool, why):
    said = told(replace(options, storagepool=pool))

    assert said.storagepool == pool and "default-pool" in said.info.storage.pools
    assert said.pool is None if why is None else why in said.pool


def test_the_masters_port_is_tried(options, listening, closed):
    assert told(options, publish_port=listening).masters == {HERE: None}
    assert told(options, publish_port=closed).masters == {HERE: "Connection refused"}


def test_guests_have_their_own_master(options, listening):
    seed = {"master": [HERE, f"{HERE}:4506", "no-such-name.invalid"]}

    said = told(replace(options, seed=seed), master="localhost", publish_port=listening).masters

    assert said.pop("no-such-name.invalid")
    assert said == {HERE: None, f"{HERE}:4506": None}


@pytest.mark.parametrize(
    "master",
    [
        *("localhost", "127.0.0.1", "", None, "127.0.1.1", "LocalHost:4506", "127.0.0.1:4506"),
        *("[::1]:4506", "ip6-localhost", ["localhost"], ["127.0.0.1", "::1"], []),
    ],
    ids=str,
)
def test_a_master_that_guests_cannot_reach_is_none(options, master):
    said = told(options, master=master)

    assert "the guest cannot reach a master" in said.no_master and said.masters == {}


def test_what_nobody_answers_is_given_up():
    begun = time.monotonic()
    # RFC 5737 keeps these addresses for documentation: nobody has them.
    wanted = [(f"192.0.2.{number}", 16514) for number in range(1, 9)]

    found = facts.explain_unreached(wanted, limit_s=0.3)

    assert list(found) == wanted and all(found.values())
    assert time.monotonic() - begun < 3


def test_libvirts_port_is_looked_at_here_and_at_others(options, listening, monkeypatch):
    monkeypatch.setattr(facts, "TLS_PORT", listening)
    peers = {"hyper1": ["192.0.2.1"], "hyper2": ["127.0.0.9", HERE], "hyper3": ["127.0.0.9"]}

    moving = told(options, peers=peers).moving

    assert moving.listens
    assert moving.peers == {"hyper2": None, "hyper3": "Connection refused"}


def test_ids_of_other_hosts_that_lead_nowhere_are_named(options, monkeypatch):
    def looked_up(name, *_given, **_more):
        if name == "hyper3":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # libvirt is told an id on a move, and no address.
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)

    names = told(options, peers={"hyper1": [], "hyper2": [], "hyper3": []}, master=[]).moving.names

    assert names == {"hyper2": None, "hyper3": "Name or service not known"}


def test_a_name_that_nobody_answers_for_is_soon_given_up(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_more: time.sleep(1))
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
def test_what_is_empty_in_the_formulas_pillar_says_nothing(pillar, folder):
    module = asloaded.module("_modules/virt_query.py", id="hyper1", master=HERE, pki_dir="/nowhere")
    module.__pillar__ = pillar

    missing = module.setup_facts()["moving"]["certificates"]

    assert missing and all(path.startswith(f"{folder}/") for path in missing)


def test_libvirts_port_is_closed(options, closed, monkeypatch):
    monkeypatch.setattr(facts, "TLS_PORT", closed)

    assert not told(options).moving.listens


def test_each_host_looks_at_three_and_is_looked_at_by_three():
    peers = {f"h{number}": [f"192.0.2.{number}"] for number in range(7)}

    near = {host: set(facts._near_addresses(host, peers)) for host in peers}

    assert near["h5"] == {"h6", "h0", "h1"}
    assert all(sum(host in its for its in near.values()) == 3 for host in peers)
    assert facts._near_addresses("h0", {"h0": ["192.0.2.1"], "h1": []}) == {}


def test_an_address_that_all_hosts_have_is_not_looked_at():
    peers = {"h0": ["192.0.2.1", "192.168.122.1"], "h1": ["192.168.122.1", "192.0.2.2"]}

    assert facts._near_addresses("h0", peers) == {"h1": [("192.0.2.2", facts.TLS_PORT)]}


def test_certificates_that_are_missing_are_named(options, tmp_path):
    places = installed.places(tmp_path)
    wanted = [places[one] for one in installed.DEFAULT_PURPOSES]
    paths = sorted(str(path) for one in wanted for path in (one.key, one.certificate))
    assert told(options, tmp_path).moving.certificates == paths

    for path in paths[1:]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("")
    assert told(options, tmp_path).moving.certificates == paths[:1]


@pytest.fixture
def images():
    """A folder that everybody can enter, as those of the tests are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        (Path(made) / "vm/images").mkdir(parents=True)
        yield Path(made) / "vm/images"


@pytest.mark.parametrize("user", ["nobody", "+65534", "65534"])
def test_a_folder_that_qemu_cannot_enter_is_named(images, user):
    assert facts.read_image_folder(str(images), {"user": user}).closed is None

    images.parent.chmod(0o700)
    said = facts.read_image_folder(str(images), {"user": user})

    assert (said.user, said.closed, said.why_not) == ("nobody", str(images.parent), None)


def test_who_may_enter_by_its_group_or_as_its_owner_is_let_in(images):
    os.chown(images, 65534, 0)
    images.chmod(0o100)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed is None
    os.chown(images, 0, 65534)
    images.chmod(0o710)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed is None
    images.chmod(0o700)
    assert facts.read_image_folder(str(images), {"user": "nobody"}).closed == str(images)
    assert facts.read_image_folder(str(images), {"user": "root"}).closed is None


def test_a_folder_that_is_not_there_is_made_later(images):
    said = facts.read_image_folder(str(images / "more/and/more"), {"user": "nobody"})

    assert (said.why_not, said.closed) == (None, None)


def test_a_file_in_its_place_is_named(images):
    (images / "file").write_text("")

    assert (
        facts.read_image_folder(str(images / "file"), {}).why_not
        == f"{images}/file is not a folder"
    )


def test_a_user_that_is_not_there_is_not_guessed(images):
    said = facts.read_image_folder(str(images), {"user": "no-such-user"})

    assert (said.user, said.closed) == (None, None)
