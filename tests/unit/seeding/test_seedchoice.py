"""The seed methods and the choice of one; tests/cloud tries the appliance itself."""

import importlib
import json
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from saltvirt.core import seedmethods
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import SeedMethod
from saltvirt.seeding import cloudconfig, golden, inspection, install, seedchoice
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.offline.worker import confined
from saltvirt.seeding.seedmodel import CloudInit, Identity, Inspection, Installation
from saltvirt.seeding.shared import minionpackages
from saltvirt.storage import seedfiles
from saltvirt.vm import spec
from saltvirt.vm.create.host import buildfacts

IMAGE = "salt://images/any.qcow2"
IDENTITY = Identity(id="web1", config={}, cloud_init=CloudInit(user_data=({}, {})))
FOUND = Inspection(root="/dev/sda1", os="X", arch="x86_64", has_systemd=True)
ROOT = Path(__file__).resolve().parents[3]
# By method: the end of its file's name, whether it reads the image, and whether a clone may use it.
EXPECTED = {
    "nocloud": ("_seed.iso.qcow2", False, True),
    "guestfs": (None, True, True),
    "nbd": (None, False, True),
    "credentials": ("_seed.credentials", True, False),
}


def request_of(guest_identity=IDENTITY, settings=None, **options):
    """Return the request of a call of virt.init, on a host without the Python binding."""
    settings = settings or HostSettings(seed={"python": sys.executable})
    deployment = spec.deployment(HostSettings(), "web1", 1, 512, {"image": IMAGE, **options})
    return buildfacts._seed_request(Context(settings=settings, opts={}), deployment, guest_identity)


@pytest.fixture
def inspecting_host(monkeypatch):
    """A host that can inspect images; tests/cloud/test_seeding.py does it with a real appliance."""
    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)


def test_without_the_binding_auto_refuses_an_unknown_image_and_names_the_remedy():
    with pytest.raises(SeedError, match="has a salt-minion is not known on this host: ") as excinfo:
        seedchoice.decide(request_of())

    for words in ("install python3-guestfs", "state.apply hypervisor", "seed_method=nocloud"):
        assert words in str(excinfo.value)
    assert "\n" not in str(excinfo.value)


def test_without_the_binding_the_user_may_vouch_for_the_minion():
    decision = seedchoice.decide(request_of(install=False))

    assert (decision.name, decision.install) == ("nocloud", None)
    assert decision.reason == "nothing here could look into the image"


def test_without_the_binding_the_known_facts_of_an_image_count():
    inspected = replace(FOUND, has_cloud_init=True, has_minion=True)
    assert seedchoice.decide(request_of(), inspected).name == "nocloud"

    for other_image in (
        replace(inspected, has_cloud_init=False),
        replace(inspected, has_minion=False, os="X 1"),
    ):
        with pytest.raises(SeedError, match="image salt://.*(has none: .*guestfs|X 1 has none)"):
            seedchoice.decide(request_of(), other_image)
    with pytest.raises(SeedError, match="needs an appliance, and this host has none: .*guestfs"):
        seedchoice.decide(
            request_of(install_from="/x.tar.xz"), replace(inspected, has_minion=False)
        )


def test_an_explicit_method_is_taken_without_an_inspection():
    def name(seed=None, **options):
        settings = HostSettings(seed=seed) if seed else None
        request = request_of(settings=settings, **options)
        assert not request.is_image_inspected
        return seedchoice.decide(request).name

    assert name(seed_method="nocloud") == "nocloud"
    assert name({"method": "nocloud"}) == "nocloud"
    assert name(seed_cmd="my.seed") == "my.seed"
    assert name({"allow_host_mount": True}, seed_method="nbd") == "nbd"


def test_guestfs_without_the_binding_is_refused_with_what_to_install():
    with pytest.raises(SeedError, match="no module 'guestfs'; install python3-guestfs"):
        seedchoice.decide(request_of(seed_method="guestfs"))


def test_a_missing_interpreter_is_named():
    assert "No such file" in appliance.why_missing("/no/such/python")


def test_an_unknown_method_is_refused():
    with pytest.raises(BadArgument, match="seed_method: 'magic'; one of auto, nocloud"):
        request_of(seed_method="magic")


@pytest.mark.parametrize(
    ("cloud_init", "minion", "source", "expected_method", "kind"),
    [
        (True, True, None, "nocloud", None),
        (True, True, "/x.tar.xz", "nocloud", None),
        (True, False, "/x.tar.xz", "nocloud", "tarball"),
        (True, False, "/a.deb,/b.deb", "nocloud", "package"),
        (False, True, None, "guestfs", None),
        (False, False, "/a.deb,/b.deb", "guestfs", "package"),
        (False, False, "/bootstrap.sh", "guestfs", "script"),
    ],
)
def test_the_cheapest_way_that_the_image_supports_is_taken(
    inspecting_host, cloud_init, minion, source, expected_method, kind
):
    inspected = replace(FOUND, has_cloud_init=cloud_init, has_minion=minion)

    seed = seedchoice.decide(request_of(install_from=source), inspected)

    assert (seed.name, seed.to_dict()["install"]) == (expected_method, kind)
    if not minion:
        with pytest.raises(SeedError, match="has no salt-minion, and install=False"):
            seedchoice.decide(request_of(install=False), inspected)


def test_the_guests_own_repositories_are_used_only_if_the_operator_allows_it(inspecting_host):
    with pytest.raises(SeedError, match="give install_from=, or set virt:seed:install_network: T"):
        seedchoice.decide(request_of(), FOUND)

    settings = HostSettings(seed={"install_network": True})
    decision = seedchoice.decide(request_of(settings=settings), FOUND)

    assert decision.install == Installation(kind="repository", network=True)


CLOUD_IMAGE = replace(FOUND, os="debian 12", has_cloud_init=True)


@pytest.mark.parametrize("system", ["fedora 42", "opensuse 15", "sles 15", "archlinux 0"])
def test_cloud_init_installs_where_the_distribution_has_a_minion(inspecting_host, system):
    seed = seedchoice.decide(request_of(), replace(CLOUD_IMAGE, os=system))

    assert (seed.name, seed.install) == ("nocloud", Installation(kind="boot"))


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ("debian 12", "debian 12 has none in its own repositories"),
        ("ubuntu 24", "ubuntu 24 has none in its own repositories"),
        ("rhel 9", "rhel 9 has none in its own repositories"),
        ("unknown 9", "it is no distribution that is known to have one"),
        ("some system", "it is no distribution that is known to have one"),
    ],
)
def test_a_guest_whose_repositories_have_no_minion_is_refused(inspecting_host, system, reason):
    with pytest.raises(SeedError) as excinfo:
        seedchoice.decide(request_of(), replace(CLOUD_IMAGE, os=system))

    assert str(excinfo.value) == (
        f"image {IMAGE} has cloud-init and no salt-minion, and {reason}"
        f"{' in its repositories' if 'known' in reason else ''}: run "
        "`salt-run virt_image.minion_packages` on the master, give install_from=, "
        "seed_method=nocloud if it gets one by itself, or seed=False for a VM without one"
    )


@pytest.mark.parametrize("cloud_init", [True, False])
@pytest.mark.parametrize(
    "facts", [{"os": "alpinelinux 3", "has_systemd": False}, {"os": "debian 12", "arch": "s390x"}]
)
def test_no_error_advises_to_fetch_a_minion_that_would_not_suit(inspecting_host, facts, cloud_init):
    image = replace(CLOUD_IMAGE, has_cloud_init=cloud_init, **facts)

    with pytest.raises(SeedError, match="give install_from= packages or a script, ") as excinfo:
        seedchoice.decide(request_of(), image)

    assert "`salt-run virt_image.minion_packages` fetches does not suit it" in str(excinfo.value)
    assert "run `" not in str(excinfo.value)


@pytest.mark.parametrize("cloud_init", [True, False])
def test_a_tarball_is_refused_where_nothing_would_start_its_minion(inspecting_host, cloud_init):
    alpine = replace(CLOUD_IMAGE, os="alpinelinux 3", has_systemd=False, has_cloud_init=cloud_init)

    with pytest.raises(SeedError, match="has no systemd, which starts the minion of a tarball"):
        seedchoice.decide(request_of(install_from="salt://x.tar.xz"), alpine)

    assert seedchoice.decide(request_of(install_from="/a.sh"), alpine).install.kind == "script"


def test_a_named_source_of_packages_is_believed_and_old_debian_has_its_own(inspecting_host):
    request = replace(request_of(), has_own_packages=True)

    assert seedchoice.decide(request, CLOUD_IMAGE).install.kind == "boot"
    assert (
        seedchoice.decide(request_of(), replace(CLOUD_IMAGE, os="debian 11")).install.kind == "boot"
    )


@pytest.mark.parametrize("key", ["apt", "yum_repos", "zypper", "packages", "bootcmd", "runcmd"])
def test_user_data_that_installs_is_known(key):
    assert cloudconfig.names_packages({key: ["x"]})
    assert not cloudconfig.names_packages({"write_files": []})


def test_a_small_system_that_is_no_distribution_may_read_the_seed_otherwise(inspecting_host):
    tiny = replace(CLOUD_IMAGE, os="some system", has_systemd=False)

    assert seedchoice.decide(request_of(), tiny).install.kind == "boot"


def test_packages_on_the_file_server_are_installed_like_named_ones(inspecting_host):
    package = minionpackages.Package(
        file="salt.tar.xz", arch="x86_64", version="3006.9", sha256="ab" * 32
    )
    request = replace(request_of(), provided=(package,))

    for cloud_init, name in ((True, "nocloud"), (False, "guestfs")):
        seed = seedchoice.decide(request, replace(CLOUD_IMAGE, has_cloud_init=cloud_init))
        assert (seed.name, seed.install.kind) == (name, "tarball")
        assert seed.install.urls == ("salt://salt-virt/minion/salt.tar.xz",)
        assert seed.install.digests == ("ab" * 32,)


@pytest.mark.parametrize(
    ("url", "is_networked", "network"),
    [
        ("/bootstrap.sh", False, False),
        ("/bootstrap.sh", True, True),
        ("/a.deb", True, False),
        ("/x.tar.xz", True, False),
    ],
)
def test_only_a_script_gets_a_network_and_only_if_the_operator_allows_it(
    url, is_networked, network
):
    installation = install.decide((url,), "x86_64", is_networked=is_networked)

    assert installation.network is network


def test_packages_of_the_guests_repositories_are_refused_without_a_network():
    golden.refuse_packages([], is_networked=False)
    golden.refuse_packages(["nginx"], is_networked=True)

    with pytest.raises(BadArgument, match="packages: .*set virt:seed:install_network: True"):
        golden.refuse_packages(["nginx"], is_networked=False)


def test_an_uninspected_disk_is_refused_only_if_it_has_no_minion(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(confined.__file__).parent))
    identity, installing = (importlib.import_module(name) for name in ("identity", "installing"))
    job = json.loads(json.dumps(install.REFUSED.to_job()))

    monkeypatch.setattr(identity, "has_minion", lambda _tree: True)
    installing.make_sure(None, {}, job)
    monkeypatch.setattr(identity, "has_minion", lambda _tree: False)
    with pytest.raises(identity.Refused, match="nothing says what to install it from; run `s"):
        installing.make_sure(None, {}, job)


@pytest.mark.parametrize(
    ("failure", "refusal"),
    [
        (
            "tar_in: tar: salt/a: Cannot write: No space left on device tar: salt/b",
            "has no room for",
        ),
        ("tar_in: the archive is damaged", "the archive is damaged"),
    ],
)
def test_a_file_system_that_a_minion_fills_is_named_in_one_sentence(failure, refusal, monkeypatch):
    class FullTree:
        def mkdir_p(self, path):
            pass

        def is_dir(self, path):
            return False

        def tar_in(self, path, folder, **options):
            raise RuntimeError(failure)

    monkeypatch.syspath_prepend(str(Path(confined.__file__).parent))
    identity, installing = (importlib.import_module(name) for name in ("identity", "installing"))
    install_job = {"kind": "tarball", "files": [["/srv/salt.tar.xz", "salt.tar.xz"]]}

    expected = identity.Refused if "room" in refusal else RuntimeError
    with pytest.raises(expected, match=refusal):
        installing._tarball(FullTree(), {}, install_job)


def test_an_image_that_cannot_be_inspected_is_refused_without_the_users_word(inspecting_host):
    broken = SeedError("the appliance did not start")

    seed = seedchoice.decide(request_of(install=False), None, broken)

    assert (seed.name, seed.reason) == ("nocloud", "the appliance did not start")
    with pytest.raises(SeedError, match="is not known: the appliance did not start; give seed_m"):
        seedchoice.decide(request_of(), None, broken)
    with pytest.raises(SeedError, match="did not start"):
        seedchoice.decide(request_of(seed_method="guestfs"), None, broken)


def test_the_plan_for_an_image_that_is_not_here_yet_claims_nothing(inspecting_host):
    seed = seedchoice.decide(request_of(user_data={"packages": ["vim"]}))

    assert seed.to_dict() == {
        "method": "auto",
        "install": None,
        "install_from": [],
        "os": None,
        "why": "the image was not looked into yet",
    }


def stand_in_file(_context, url, *_options):
    """Stand for a fetched file; other tests check the fetching."""
    return SimpleNamespace(path=url)


def test_the_guests_processor_is_put_into_the_files_name(monkeypatch):
    monkeypatch.setattr(install.fetch, "obtain", stand_in_file)
    context = Context(settings=HostSettings(), opts={})

    prepared = install.prepare(context, ("/salt-{arch}.tar.xz",), "aarch64", "base")

    assert prepared.files == (("/salt-aarch64.tar.xz", "salt-aarch64.tar.xz"),)
    with pytest.raises(BadArgument, match="write the file's name instead"):
        install.decide(("/salt-{arch}.tar.xz",), None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"seed_method": "nbd"}, "set virt:seed:allow_host_mount: True"),
        ({"seed_method": "nocloud", "install_from": "/x.tar"}, "install_from needs seed_method"),
        ({"install_from": "magic"}, "install_from: 'magic'; write salt://path"),
        ({"install_from": "/a.deb,/b.sh"}, "only packages"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_made(options, reason):
    with pytest.raises((SeedError, BadArgument), match=reason):
        seedchoice.decide(request_of(**options))


def test_user_data_needs_cloud_init(inspecting_host):
    identity_with_data = replace(
        IDENTITY, cloud_init=CloudInit(user_data=({}, {"packages": ["vim"]}))
    )

    with pytest.raises(SeedError, match="with guestfs nothing in the guest would read them"):
        seedchoice.decide(request_of(identity_with_data), replace(FOUND, has_minion=True))


@pytest.mark.parametrize(
    ("facts", "options", "reason"),
    [
        ({"has_minion": False}, {}, "credentials cannot install one"),
        ({"systemd_version": 239}, {}, "has systemd 239; credentials need systemd 252"),
        ({"has_systemd": False, "systemd_version": None}, {}, "has no systemd; credentials"),
        ({}, {"start": False}, "leave out start=False"),
        ({"root": None}, {}, "there is no operating system in it"),
    ],
)
def test_credentials_need_a_minion_a_new_systemd_and_a_start(
    inspecting_host, facts, options, reason
):
    suitable = replace(FOUND, has_minion=True, systemd_version=252)
    call_options = {"seed_method": "credentials"}
    assert seedchoice.decide(request_of(**call_options), suitable).name == "credentials"

    with pytest.raises(SeedError, match=reason):
        seedchoice.decide(request_of(**call_options, **options), replace(suitable, **facts))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"os": "X"}, "root is missing"),
        ({"root": 7}, "root is int"),
        ({"root": "/", "systemd_version": "new"}, "systemd_version is str"),
        ("nothing", "it is str"),
    ],
)
def test_a_malformed_answer_of_the_worker_is_one_line(answer, reason):
    with pytest.raises(
        SeedError, match=f"answer about the disk cannot be read: .*{reason}"
    ) as excinfo:
        inspection.parse_content(answer)

    assert "\n" not in str(excinfo.value)


def test_the_record_of_an_image_from_an_older_release_is_read():
    assert inspection.parse_content({"root": None}) == Inspection(root=None)
    content = {"root": "/dev/sda1", "os": "X", "arch": "x86_64", "has_minion": True, "more": 1}
    assert inspection.parse_content(content).has_minion is True


def test_the_entries_of_the_seed_methods():
    entries = {
        method.name: (method.file_end, method.reads_image, method.replaces_identity)
        for method in seedmethods.METHODS.values()
    }

    assert entries == EXPECTED
    assert ("auto", *EXPECTED) == seedmethods.NAMES


def test_the_pages_list_every_seed_method():
    table = (ROOT / "docs/seeding.md").read_text().partition("## The methods")[2]
    rows = re.findall(r"^\| `([a-z]+)` \|", table.partition("\n## ")[0], re.MULTILINE)
    docstring = (ROOT / "_modules/virt.py").read_text().partition("    seed_method\n")[2]
    words = re.findall(r"``(\w+)``", docstring.partition("Defaults to")[0])

    assert sorted(rows) == sorted(words) == sorted(seedmethods.NAMES)


def test_a_further_method_is_one_entry(monkeypatch):
    config_drive = SeedMethod(
        name="configdrive",
        writes_to=seedmethods.SEED,
        file_end="_config.iso",
        is_for_cloud_init=True,
        replaces_identity=False,
        no_install_from="a test",
    )
    monkeypatch.setitem(seedmethods.METHODS, config_drive.name, config_drive)
    monkeypatch.setattr(seedmethods, "NAMES", ("auto", *seedmethods.METHODS))

    decision = seedchoice.decide(request_of(seed_method="configdrive"))

    assert decision.name == "configdrive" and decision.method is config_drive
    assert seedfiles.path("/images", "web1", decision.method) == "/images/web1_config.iso"
    with pytest.raises(SeedError, match="install_from needs .*: a test"):
        seedchoice.decide(request_of(seed_method="configdrive", install_from="/a.sh"))


def test_a_further_method_by_an_appliance_gets_its_user_and_its_words(monkeypatch, tmp_path):
    further_method = SeedMethod(
        name="further", writes_to=seedmethods.DISK, tool="the further tool", needs_appliance=True
    )
    monkeypatch.setitem(seedmethods.METHODS, further_method.name, further_method)
    monkeypatch.setattr(appliance.lending, "accounts", lambda: ["a user"])
    monkeypatch.setattr(
        appliance.lending, "borrow_account", lambda accounts, *_more: nullcontext(accounts[0])
    )

    def account(job):
        with appliance._borrow_account(job, tmp_path, ()) as account_:
            return account_

    job = {"action": "seed", "path": "/a", "limit_s": 1}
    for job_way, expected in (
        ({}, "a user"),
        ({"via": "further"}, "a user"),
        ({"via": "nbd"}, None),
        ({"via": "folder"}, None),
    ):
        assert account({**job, **job_way}) == expected
    with pytest.raises(SeedError, match="the further tool failed on /a: no room"):
        appliance._answer({**job, "via": "further"}, 0, '{"failed": "no room"}', "")


# The worker is a program of its own. Modules of Salt and cells use some of these words, too.
EXCLUDED = ("seeding/offline/worker/", "cells/", "core/salt/lookonly.py", "granted.py")
LIBRARY = ROOT / "_utils/saltvirt"
ENTRY = rf"(?:{'|'.join(n for n, e in vars(seedmethods).items() if isinstance(e, SeedMethod))})"
COMPARED = re.compile(
    rf"(?:[!=]=|\bin|\bis|\bnot) [(]?(?:seedmethods\.)?{ENTRY}\b"
    rf"|\b{ENTRY}(?:\.name)? (?:[!=]=|not in|in|is) "
)


def files_with(pattern):
    """Return the files of the library that a pattern is found in."""
    return [
        path
        for path in (str(file.relative_to(LIBRARY)) for file in sorted(LIBRARY.rglob("*.py")))
        if re.search(pattern, (LIBRARY / path).read_text()) and not any(o in path for o in EXCLUDED)
    ]


def test_only_the_table_has_the_names_of_seed_methods():
    names = "|".join(seedmethods.METHODS)

    assert files_with(rf"(?<!\()[\"'](?:{names})[\"']") == [
        "core/seedmethods.py",
        "seeding/offline/hostmount.py",
    ]


def test_no_code_compares_a_method_with_one_of_the_table():
    for text in (
        "via != GUESTFS.name:",
        "if NBD.name == via",
        "m is seedmethods.NOCLOUD",
        "in (NBD",
    ):
        assert COMPARED.search(text)

    # The module that lists them.
    assert files_with(COMPARED) == ["core/seedmethods.py"]
