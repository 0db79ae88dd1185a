"""virt.absent removes a VM with its disks, and virt.image_present fetches an image once."""

import hashlib

import faces
import pytest
from saltvirt.core.journal import records
from saltvirt.vm.purge.host import purge


@pytest.fixture
def states(hypervisor):
    """The module of the states, on the hypervisor."""
    options = {"images": hypervisor.settings.images, "state_dir": hypervisor.settings.state_dir}
    module = faces.load("states", "virt_absent", options, salt={})
    module.__opts__ |= {"id": "hyper1", "cachedir": str(hypervisor.root / "cache")}
    return module


def applied(states, function, name, **options):
    """Return the outcome of a state with test=True, and of two runs without."""
    outcomes = []
    for is_test in (True, False, False):
        states.__opts__["test"] = is_test
        answer = getattr(states, function)(name, **options)
        assert answer["name"] == name and answer["comment"] and "\n" not in answer["comment"]
        outcomes.append((answer["result"], answer["changes"]))
    return outcomes


def test_a_vm_goes_with_its_disks_once(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()
        changes = {"web1": "purged"}

        answer = applied(states, "absent", "web1")

    assert answer == [(None, changes), (True, changes), (True, {})]
    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])


@pytest.mark.parametrize("days", [0, 7])
def test_a_vm_that_is_in_the_trash_says_how_that_is_undone(states, hypervisor, days):
    states.__opts__["virt"] = {**states.__opts__["virt"], "trash_days": days}
    states.__opts__["test"] = False
    with hypervisor.libvirt():
        hypervisor.init()

        answer = states.absent("web1")

    assert answer["comment"].endswith("; undo: virt.undo web1") is bool(days)


def test_with_test_nothing_is_removed(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()
        states.__opts__["test"] = True

        states.absent("web1")

        assert hypervisor.domains() == ["web1"] and "web1_system.qcow2" in hypervisor.files()


def test_leftovers_of_an_interrupted_purge_are_removed(states, hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()

    def work():
        with hypervisor.libvirt() as conn:
            purge.purge(conn, hypervisor.settings, "web1")

    hypervisor.dies(work, "purge.removing")
    with hypervisor.libvirt():
        answer = applied(states, "absent", "web1")

    changes = {"web1": "purged"}
    assert answer == [(None, changes), (True, changes), (True, {})]
    assert list(records.read_records(hypervisor.root / "state/records", "purge")) == []


@pytest.mark.parametrize(
    ("function", "name", "options", "reason"),
    [
        ("absent", "web*", {}, "is a pattern"),
        ("absent", "web1", {"dirs": True}, "no argument 'dirs'"),
        ("absent", "web1", {"removables": "yes"}, "neither True nor False"),
        ("image_present", "debian", {}, "is not an image"),
    ],
)
def test_wrong_arguments_are_refused(states, function, name, options, reason):
    answer = getattr(states, function)(name, **options)

    assert answer["result"] is False and reason in answer["comment"] and answer["changes"] == {}


def test_an_image_is_fetched_once(states, hypervisor):
    path = hypervisor.root / "image.qcow2"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    answer = applied(states, "image_present", str(path))

    assert answer == [(None, {str(path): None}), (True, {str(path): digest}), (True, {})]


def test_an_image_that_is_not_there_fails(states, hypervisor):
    answer = states.image_present(str(hypervisor.root / "none.qcow2"))

    assert answer["result"] is False and "none.qcow2" in answer["comment"]
