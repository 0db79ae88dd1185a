"""A VM with the UUID of one that comes, under another name: a copy that somebody made by hand."""

import shutil

import pytest
from saltvirt.core.errors import ReservationRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import arrival, arrivalchecks
from saltvirt.vm.show.host import migrationinfo


@pytest.fixture
def moving(end, conn):
    """What another host has said of web1, of which this host has a copy called web1-old."""
    paths = end.make(conn)
    said = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    lifecycle.undefine(conn, "web1")
    copies = [path.with_name(f"old_{path.name}") for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        shutil.move(path, copy)
    end.define(conn, "web1-old", said.uuid, paths=copies)
    return said


def test_a_host_with_a_vm_of_its_uuid_does_not_take_it(end, conn, moving):
    """It would be taken for the one that comes: as arrived, or, if the move is given up, as his."""
    with pytest.raises(ReservationRefused, match="VM 'web1-old' there has its UUID 4dea22b3-"):
        arrival.prepare(end.context, moving, "t1", "hyper1")

    assert end.record("arrival") is None
    assert end.hypervisor.files() == ["old_web1_0.raw", "old_web1_1.raw"]
    assert lifecycle.is_defined(conn, "web1-old")


def test_it_is_said_before_a_move_too(end, conn, moving):
    (why,) = arrivalchecks.check(conn, end.settings, moving)

    assert why.startswith("VM 'web1-old' there has its UUID 4dea22b3-1d52-d8f3-2516-782e98ab3fa0; ")


def test_one_of_its_name_is_said_once(end, conn, moving):
    lifecycle.undefine(conn, "web1-old")
    end.define(conn, "web1", moving.uuid)

    assert arrivalchecks.check(conn, end.settings, moving) == ["it already has a VM called web1"]


@pytest.mark.parametrize(("name", "said"), [("web1-old", 1), ("web1", 0)])
def test_by_hand_it_does_not_go_there_but_back_to_where_its_definition_was_kept(
    end, conn, moving, monkeypatch, name, said
):
    monkeypatch.setattr(
        arrivalchecks.hostfacts, "capabilities", lambda _conn: {"arch": "i686", "guests": []}
    )
    monkeypatch.setattr(arrivalchecks.generation, "reasons", lambda *_: [])
    lifecycle.undefine(conn, "web1-old")
    end.define(conn, name, moving.uuid)

    assert len(arrivalchecks.unfit_reasons(conn, moving)) == said
