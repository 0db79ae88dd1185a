"""A VM that is to be gone goes with its disks, and an image that is to be here is fetched once."""

import hashlib

import faces
import pytest
from saltvirt.core.journal import records
from saltvirt.vm.purge.host import purge


@pytest.fixture
def states(hypervisor):
    """The states, on that host."""
    options = {"images": hypervisor.settings.images, "state_dir": hypervisor.settings.state_dir}
    made = faces.load("states", "virt_absent", options, salt={})
    made.__opts__ |= {"id": "hyper1", "cachedir": str(hypervisor.root / "cache")}
    return made


def applied(states, function, name, **given):
    """Return what a state says with test=True, and what it says twice without."""
    out = []
    for is_test in (True, False, False):
        states.__opts__["test"] = is_test
        said = getattr(states, function)(name, **given)
        assert said["name"] == name and said["comment"] and "\n" not in said["comment"]
        out.append((said["result"], said["changes"]))
    return out


def test_a_vm_goes_with_its_disks_once(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()
        gone = {"web1": "purged"}

        said = applied(states, "absent", "web1")

    assert said == [(None, gone), (True, gone), (True, {})]
    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])


@pytest.mark.parametrize("days", [0, 7])
def test_a_vm_that_is_in_the_trash_says_how_that_is_undone(states, hypervisor, days):
    states.__opts__["virt"] = {**states.__opts__["virt"], "trash_days": days}
    states.__opts__["test"] = False
    with hypervisor.libvirt():
        hypervisor.init()

        said = states.absent("web1")

    assert said["comment"].endswith("; undo: virt.undo web1") is bool(days)


def test_with_test_nothing_is_removed(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()
        states.__opts__["test"] = True

        states.absent("web1")

        assert hypervisor.domains() == ["web1"] and "web1_system.qcow2" in hypervisor.files()


def test_what_an_interrupted_purge_left_is_removed(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()

    def work():
        with hypervisor.libvirt() as conn:
            purge.purge(conn, hypervisor.settings, "web1")

    hypervisor.dies(work, "purge.removing")
    with hypervisor.libvirt():
        said = applied(states, "absent", "web1")

    gone = {"web1": "purged"}
    assert said == [(None, gone), (True, gone), (True, {})]
    assert list(records.read_records(hypervisor.root / "state/records", "purge")) == []


@pytest.mark.parametrize(
    ("function", "name", "given", "why"),
    [
        ("absent", "web*", {}, "is a pattern"),
        ("absent", "web1", {"dirs": True}, "no argument 'dirs'"),
        ("absent", "web1", {"removables": "yes"}, "neither True nor False"),
        ("image_present", "debian", {}, "is not an image"),
    ],
)
def test_what_cannot_be_is_refused(states, function, name, given, why):
    said = getattr(states, function)(name, **given)

    assert said["result"] is False and why in said["comment"] and said["changes"] == {}


def test_an_image_is_fetched_once(states, hypervisor):
    path = hypervisor.root / "image.qcow2"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    said = applied(states, "image_present", str(path))

    assert said == [(None, {str(path): None}), (True, {str(path): digest}), (True, {})]


def test_an_image_that_is_not_there_fails(states, hypervisor):
    said = states.image_present(str(hypervisor.root / "none.qcow2"))

    assert said["result"] is False and "none.qcow2" in said["comment"]
