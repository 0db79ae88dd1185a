"""The records of a move on a host: how they block other commands."""

import onrecord
import pytest
import told
from saltvirt.cluster import orders
from saltvirt.core import filecontent
from saltvirt.core.errors import NameTaken
from saltvirt.core.journal import records
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.migration.host import departure, movestate
from saltvirt.migration.master import moveexecutor
from saltvirt.storage import definitionfiles


@pytest.mark.parametrize("phase", [moveprotocol.READY, moveprotocol.ARRIVED, moveprotocol.REFUSED])
def test_a_vm_whose_arrival_is_not_over_does_not_leave(host, phase):
    with records.hold_record(reservations.folder(host), "arrival", "vm1") as record:
        record.begin("t0", phase, **onrecord.arrival())
    with records.hold_record(reservations.folder(host), "departure", "vm1") as record:
        context = type("Context", (), {"settings": host})
        vm_departure = departure.Departure(context, (None, None), record, "vm1")
        vm_departure.moving = told.moving(uuid="u1")
        with pytest.raises(NameTaken, match="coming to this host"):
            vm_departure.open("t1")
        assert record.record is None


def test_an_order_is_closed_by_its_own_move_only(host):
    folder = reservations.folder(host)
    hosts = moveexecutor.MoveHosts(source="a", target="b")
    with records.hold_record(folder, "order", "vm1") as record:
        record.begin("t1", orders.MOVING, **onrecord.move_order())
        moveexecutor.MoveExecutor(None, record, "t0", hosts).close()
        assert record.record is not None
        moveexecutor.MoveExecutor(None, record, "t1", hosts).close()
        assert record.record is None


def test_missing_files_count_as_empty_only_if_the_vm_is_not_here(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(b"")
    signatures = {str(path): filecontent.signature(path)}
    assert movestate._is_empty(signatures, is_here=True)
    path.unlink()
    assert movestate._is_empty(signatures, is_here=False)
    assert not movestate._is_empty(signatures, is_here=True)


def test_autostart_is_on_the_disk_with_the_definitions(tmp_path, monkeypatch, synced):
    (tmp_path / "autostart").mkdir()
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", tmp_path)
    definitionfiles.settle_definitions()
    assert [name for name, _is_held in synced] == [tmp_path.name, "autostart"]
