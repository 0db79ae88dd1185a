"""Files that stay on the source: of a VM on a third host, and of a VM moved by hand."""

import os
import time
from contextlib import nullcontext
from pathlib import Path

import libvirt
import pytest
from endkit import UUID
from saltvirt.core.errors import VirtError
from saltvirt.libvirt.domains import lifecycle, migrate
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import departure
from saltvirt.vm.power.host import startlock
from saltvirt.vm.show.host import migrationinfo


def test_the_files_of_a_vm_that_a_third_host_has_stay_and_are_named(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()

    outcome = end.step("give_way", keeper="hyper3")

    assert outcome["warnings"] == [f"its files are left there: {paths[0]}, {paths[1]}"]
    assert end.record("departure") is None and lifecycle.moved_to(conn, "web1") == "hyper3"
    with (
        pytest.raises(VirtError, match="hyper3"),
        startlock.allow_start(conn, end.settings, "web1"),
    ):
        pytest.fail("it may be started")


def test_give_way_is_refused_while_the_vm_runs(end, conn):
    end.make(conn)
    end.begin()
    end.send()
    conn.lookupByName("web1").create()

    with pytest.raises(MigrationFailed, match="'web1' runs here"):
        end.step("give_way", keeper="hyper3")
    assert end.phase("departure") == "handing"


def test_the_last_definitions_of_vms_moved_by_hand_are_kept(end, conn, monkeypatch):
    monkeypatch.setattr("saltvirt.libvirt.departedvms._MOST", 2)
    end.make(conn)
    folder = Path(end.settings.state_dir) / "moved"
    folder.mkdir(parents=True)
    for name, age_days in (("old", 2), ("new", 1)):
        (folder / f"{name}.xml").touch()
        timestamp = time.time() - age_days * 24 * 3600
        os.utime(folder / f"{name}.xml", (timestamp, timestamp))
    with departure.open_departure(end.context, "web1") as vm_departure:
        vm_departure.moving = migrationinfo.gather(conn, end.settings, "web1")["web1"]
        vm_departure.target, vm_departure.is_by_hand = "hyper2", True
        vm_departure.open("t1")
    end.send()
    end.step("finish")

    assert sorted(path.name for path in folder.glob("*.xml")) == ["new.xml", "web1.xml"]
    assert (folder / "web1.xml").stat().st_mode & 0o777 == 0o600
    assert not lifecycle.is_defined(conn, "web1")
    lifecycle.define(conn, (folder / "web1.xml").read_text())
    assert lifecycle.name_of(conn, UUID) == "web1"


class TargetLibvirt:
    """The libvirt of the host that a VM was moved to."""

    def __init__(self, refuses=False):
        self.refuses, self.autostart_calls = refuses, []

    def lookupByName(self, _name):
        if self.refuses:
            raise libvirt.libvirtError("it is read-only")
        return self

    def setAutostart(self, state):
        self.autostart_calls.append(state)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_vm_moved_by_hand_starts_with_its_new_host_as_before(end, conn, monkeypatch, refuses):
    end.make(conn)
    lifecycle.set_autostart(conn, "web1", "on")
    with departure.open_departure(end.context, "web1") as vm_departure:
        vm_departure.moving = migrationinfo.gather(conn, end.settings, "web1")["web1"]
        vm_departure.target, vm_departure.is_by_hand = "hyper2", True
        vm_departure.open("t1")
    end.send()
    target_libvirt = TargetLibvirt(refuses)
    monkeypatch.setattr(migrate, "target", lambda _uri: nullcontext(target_libvirt))

    warnings = end.step("finish")["warnings"]

    assert target_libvirt.autostart_calls == ([] if refuses else [1])
    assert ["it does not start with its new host" in warning for warning in warnings] == [
        True
    ] * refuses


def test_the_definition_of_a_vm_that_the_runner_moves_is_not_kept(end, conn):
    end.make(conn)
    end.begin()
    end.send()
    end.step("finish")

    # web1.json names the new host for states; it is not a definition.
    files = (Path(end.settings.state_dir) / "moved").iterdir()
    assert [path.name for path in files] == ["web1.json"]
