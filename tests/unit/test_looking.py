"""How the way of seeding is chosen; the appliance itself is tried in tests/cloud."""

import sys
from types import SimpleNamespace

import pytest
from saltvirt import spec
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError
from saltvirt.ops import looking
from saltvirt.ops.context import Context
from saltvirt.seed import appliance

IMAGE = "salt://images/any.qcow2"


def context(said, **seed):
    """Return a host whose interpreter for the binding is the tests' own, which has none."""
    settings = HostSettings(seed={"python": sys.executable, **seed})
    return Context(settings=settings, opts={}, say=lambda stage, **more: said.append(more))


def deployment(**given):
    """Return what a call of virt.init means."""
    return spec.deployment(HostSettings(), "web1", 1, 512, {"image": IMAGE, **given})


def test_without_the_binding_auto_is_nocloud_and_says_so():
    said = []

    chosen = looking.method(context(said), deployment(), {})

    assert chosen == "nocloud"
    assert said == [{"detail": "by nocloud; nothing here could look into the image"}]


def test_what_was_asked_for_is_taken_without_looking():
    assert looking.method(context([]), deployment(seed_method="nocloud"), {}) == "nocloud"
    assert looking.method(context([], method="nocloud"), deployment(), {}) == "nocloud"
    assert looking.method(context([]), deployment(seed_cmd="my.seed"), {}) == "my.seed"


def test_guestfs_without_the_binding_is_refused_with_what_to_install():
    with pytest.raises(SeedError, match="no module 'guestfs'; install python3-guestfs"):
        looking.method(context([]), deployment(seed_method="guestfs"), {})


def test_an_interpreter_that_is_not_there_is_named():
    assert "No such file" in appliance.why_missing("/no/such/python")


def test_an_unknown_method_is_refused():
    with pytest.raises(BadArgument, match="seed_method: 'magic'; one of auto, nocloud"):
        deployment(seed_method="magic")


@pytest.mark.parametrize(("has", "chosen"), [
    ({"has_cloud_init": True, "has_minion": True}, "nocloud"),
    ({"has_cloud_init": False, "has_minion": True}, "guestfs"),
    ({"has_cloud_init": False, "has_minion": False}, "guestfs"),
])  # fmt: skip
def test_the_cheapest_way_that_the_image_supports_is_taken(monkeypatch, has, chosen):
    # The answer of an appliance; a real one gives it in tests/cloud/test_seeding.py.
    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)
    monkeypatch.setattr(looking, "look", lambda *_a, **_k: {"root": "/dev/sda1", "os": "X", **has})
    base = {IMAGE: SimpleNamespace(path="/x", format="qcow2")}

    assert looking.method(context([]), deployment(), base) == chosen
    if not has["has_minion"]:
        with pytest.raises(SeedError, match="has no salt-minion, and install=False"):
            looking.method(context([]), deployment(install=False), base)
