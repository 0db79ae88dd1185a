"""A clone that fails, or whose builder dies, leaves nothing; nobody uses its source meanwhile."""

import os
import signal

import pytest
from clonekit import FILES, change, cloned, disk, nothing_of_it, write
from saltvirt.core.errors import LibvirtRefused, NameTaken, StorageError
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import nocloud
from saltvirt.storage.images import clone, tool
from saltvirt.vm.create.host import apply
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished

pytestmark = pytest.mark.slow


def test_nobody_starts_moves_or_purges_the_source_meanwhile(hypervisor, stopped, monkeypatch):
    said = []

    def tried(*_args, **_given):
        settings = hypervisor.settings
        for work in (
            lambda: reservations.refuse_moving(settings, "web1"),
            lambda: purge.purge(stopped, settings, "web1"),
            lambda: startlock.allow_start(stopped, settings, "web1").__enter__(),
        ):
            with pytest.raises(NameTaken, match="'web1' has been cloned as 'db1' since") as error:
                work()
            said.append(str(error.value))

    with monkeypatch.context() as watching:
        watching.setattr(nocloud, "build", tried)
        watching.setattr(apply, "_mark_and_settle", lambda *_: None)
        cloned(hypervisor)
    assert len(said) == 3

    with startlock.allow_start(stopped, hypervisor.settings, "web1"):
        lifecycle.start(stopped, "web1")


@pytest.mark.parametrize("how", ["started", "written to", "changed"])
def test_a_source_that_was_used_meanwhile_has_no_clone(hypervisor, stopped, monkeypatch, how):
    convert = tool.convert

    def meanwhile(*args):
        convert(*args)
        if how == "started":
            lifecycle.start(stopped, "web1")
        elif how == "written to":
            write(disk(hypervisor, "web1_system.qcow2"), 9)
        else:
            change(stopped, "web1", lambda xml: xml.replace("</name>", "</name><title>x</title>"))

    monkeypatch.setattr(clone.tool, "convert", meanwhile)

    with pytest.raises(
        LibvirtRefused, match="'web1' (runs|was (used|changed) while it was copied)"
    ):
        cloned(hypervisor)

    assert nothing_of_it(hypervisor)


POINTS = {
    "build.before-making": False,
    "build.making": False,
    "build.before-defining": False,
    "build.defining": False,
    "build.before-complete": True,
    "build.complete": True,
    "build.end": True,
}


@pytest.mark.parametrize(("point", "stays"), POINTS.items(), ids=POINTS)
def test_what_a_killed_one_leaves_is_settled_as_a_builds(hypervisor, point, stays):
    with hypervisor.libvirt():
        hypervisor.init(start=False)
    before = hypervisor.files()
    hypervisor.dies(lambda: cloned(hypervisor), point)

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

        assert hypervisor.open_records() == []
        assert hypervisor.domains() == (["db1", "web1"] if stays else ["web1"])
        assert hypervisor.files() == sorted([*before, *(FILES if stays else [])])


def test_one_that_is_killed_while_it_copies_leaves_no_file(hypervisor, monkeypatch):
    with hypervisor.libvirt():
        hypervisor.init(start=False)
    before = hypervisor.files()
    with monkeypatch.context() as dying:
        dying.setattr(clone.tool, "convert", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        hypervisor.dies(lambda: cloned(hypervisor))
    assert hypervisor.files() != before

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)
    assert (hypervisor.files(), hypervisor.open_records()) == (before, [])


def test_a_failure_of_the_copy_takes_all_back(hypervisor, stopped, monkeypatch):
    def fails(*_args):
        raise StorageError("cannot write disk: no space left")

    monkeypatch.setattr(clone.tool, "convert", fails)
    with pytest.raises(StorageError, match="no space left"):
        cloned(hypervisor)

    assert nothing_of_it(hypervisor)
