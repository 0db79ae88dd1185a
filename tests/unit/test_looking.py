"""How the way of seeding is chosen; the appliance itself is tried in tests/cloud."""

import sys
from types import SimpleNamespace

import pytest
from saltvirt import spec
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError
from saltvirt.ops import installing, looking
from saltvirt.ops.context import Context
from saltvirt.seed import appliance

IMAGE = "salt://images/any.qcow2"
BASE = {IMAGE: SimpleNamespace(path="/x", format="qcow2")}
IDENTITY = {"cloud": {"user_data": ({}, {}), "network": None}}


def context(said, **seed):
    """Return a host whose interpreter for the binding is the tests' own, which has none."""
    settings = HostSettings(seed={"python": sys.executable, **seed})
    return Context(settings=settings, opts={}, say=lambda stage, **more: said.append(more))


def deployment(**given):
    """Return what a call of virt.init means."""
    return spec.deployment(HostSettings(), "web1", 1, 512, {"image": IMAGE, **given})


def test_without_the_binding_auto_is_nocloud_and_says_so():
    said = []

    chosen = looking.way(context(said), deployment(), BASE, IDENTITY)

    assert chosen == looking.Way(method="nocloud", install={"kind": "boot"})
    assert said == [{"detail": "by nocloud; nothing here could look into the image"}]


def test_what_was_asked_for_is_taken_without_looking():
    def method(deployed, **seed):
        return looking.way(context([], **seed), deployed, {}, IDENTITY).method

    assert method(deployment(seed_method="nocloud")) == "nocloud"
    assert method(deployment(), method="nocloud") == "nocloud"
    assert method(deployment(seed_cmd="my.seed")) == "my.seed"
    assert method(deployment(seed_method="nbd"), allow_host_mount=True) == "nbd"


def test_guestfs_without_the_binding_is_refused_with_what_to_install():
    with pytest.raises(SeedError, match="no module 'guestfs'; install python3-guestfs"):
        looking.way(context([]), deployment(seed_method="guestfs"), BASE, IDENTITY)


def test_an_interpreter_that_is_not_there_is_named():
    assert "No such file" in appliance.why_missing("/no/such/python")


def test_an_unknown_method_is_refused():
    with pytest.raises(BadArgument, match="seed_method: 'magic'; one of auto, nocloud"):
        deployment(seed_method="magic")


def here(_context, url, *_more):
    """Stand for a file that is fetched; fetching has tests of its own."""
    return SimpleNamespace(path=url)


@pytest.fixture
def looked(monkeypatch):
    """Let a test say what is found; a real appliance looks in tests/cloud/test_seeding.py."""
    found = {"root": "/dev/sda1", "os": "X", "arch": "x86_64"}
    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)
    monkeypatch.setattr(looking, "look", lambda *_a, **_k: found)
    return found


@pytest.mark.parametrize(("cloud_init", "minion", "source", "chosen", "kind"), [
    (True, True, None, "nocloud", None),
    (True, True, "/x.tar.xz", "nocloud", None),
    (True, False, None, "nocloud", "boot"),
    (True, False, "/x.tar.xz", "guestfs", "tarball"),
    (False, True, None, "guestfs", None),
    (False, False, None, "guestfs", "repository"),
    (False, False, "/a.deb,/b.deb", "guestfs", "package"),
    (False, False, "/bootstrap.sh", "guestfs", "script"),
])  # fmt: skip
def test_the_cheapest_way_that_the_image_supports_is_taken(
    looked, monkeypatch, cloud_init, minion, source, chosen, kind
):
    looked.update(has_cloud_init=cloud_init, has_minion=minion)
    monkeypatch.setattr(installing.fetching, "obtain", here)

    way = looking.way(context([]), deployment(install_from=source), BASE, IDENTITY)

    assert (way.method, (way.install or {}).get("kind")) == (chosen, kind)
    if not minion:
        with pytest.raises(SeedError, match="has no salt-minion, and install=False"):
            looking.way(context([]), deployment(install=False), BASE, IDENTITY)


def test_the_guests_processor_is_put_into_the_files_name(monkeypatch):
    monkeypatch.setattr(installing.fetching, "obtain", here)

    got = installing.prepared(context([]), ("/salt-{arch}.tar.xz",), "aarch64", "base")

    assert got["files"] == [("/salt-aarch64.tar.xz", "salt-aarch64.tar.xz")]
    with pytest.raises(BadArgument, match="write the file's name instead"):
        installing.prepared(context([]), ("/salt-{arch}.tar.xz",), None, "base")


@pytest.mark.parametrize(("given", "why"), [
    ({"seed_method": "nbd"}, "set virt:seed:allow_host_mount: True"),
    ({"seed_method": "nocloud", "install_from": "/x.tar"}, "install_from needs seed_method"),
    ({"install_from": "magic"}, "install_from: 'magic'; write salt://path"),
    ({"install_from": "/a.deb,/b.sh"}, "only packages"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_made(looked, given, why):
    looked.update(has_cloud_init=False, has_minion=False)

    with pytest.raises((SeedError, BadArgument), match=why):
        looking.way(context([]), deployment(**given), BASE, IDENTITY)


def test_what_only_cloud_init_reads_needs_cloud_init(looked):
    looked.update(has_cloud_init=False, has_minion=True)
    told = {"cloud": {"user_data": ({}, {"packages": ["vim"]}), "network": None}}

    with pytest.raises(SeedError, match="with guestfs nothing in the guest would read them"):
        looking.way(context([]), deployment(), BASE, told)


@pytest.mark.parametrize(("found", "given", "why"), [
    ({"has_minion": False}, {}, "credentials install none"),
    ({"systemd_version": 239}, {}, "has systemd 239; credentials need 252"),
    ({"has_systemd": False, "systemd_version": None}, {}, "has systemd of no kind"),
    ({}, {"start": False}, "leave out start=False"),
    ({"root": None}, {}, "there is no operating system in it"),
])  # fmt: skip
def test_credentials_need_a_minion_a_new_systemd_and_a_start(looked, found, given, why):
    fine = {"has_cloud_init": False, "has_minion": True, "has_systemd": True}
    looked.update({**fine, "systemd_version": 252})
    asked = {"seed_method": "credentials"}
    assert looking.way(context([]), deployment(**asked), BASE, IDENTITY).method == "credentials"
    looked.update(found)

    with pytest.raises(SeedError, match=why):
        looking.way(context([]), deployment(**asked, **given), BASE, IDENTITY)
