"""The records of a move on a host: what stands in the way of another command."""

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
    with records.hold_record(reservations.folder(host), "arrival", "vm1") as held:
        held.begin("t0", phase, **onrecord.arrival())
    with records.hold_record(reservations.folder(host), "departure", "vm1") as held:
        context = type("Context", (), {"settings": host})
        hands = departure.Departure(context, (None, None), held, "vm1")
        hands.moving = told.moving(uuid="u1")
        with pytest.raises(NameTaken, match="coming to this host"):
            hands.open("t1")
        assert held.record is None


def test_an_order_is_closed_by_its_own_move_only(host):
    place = reservations.folder(host)
    hosts = moveexecutor.MoveHosts(source="a", target="b")
    with records.hold_record(place, "order", "vm1") as held:
        held.begin("t1", orders.MOVING, **onrecord.move_order())
        moveexecutor.MoveExecutor(None, held, "t0", hosts).close()
        assert held.record is not None
        moveexecutor.MoveExecutor(None, held, "t1", hosts).close()
        assert held.record is None


def test_files_that_are_gone_hold_nothing_unless_the_vm_is_here(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(b"")
    made = {str(path): filecontent.signature(path)}
    assert movestate._is_empty(made, is_here=True)
    path.unlink()
    assert movestate._is_empty(made, is_here=False)
    assert not movestate._is_empty(made, is_here=True)


def test_autostart_is_on_the_disk_with_the_definitions(tmp_path, monkeypatch, synced):
    (tmp_path / "autostart").mkdir()
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", tmp_path)
    definitionfiles.settle_definitions()
    assert [name for name, _held in synced] == [tmp_path.name, "autostart"]
