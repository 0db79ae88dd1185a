"""A copy of an arriving VM that was made by hand: it has the UUID under another name."""

import shutil

import pytest
from saltvirt.core.errors import ReservationRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import arrival, arrivalchecks
from saltvirt.vm.show.host import migrationinfo


@pytest.fixture
def moving(end, conn):
    """The migration info of web1; this host has a copy of it called web1-old."""
    paths = end.make(conn)
    info = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    lifecycle.undefine(conn, "web1")
    copies = [path.with_name(f"old_{path.name}") for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        shutil.move(path, copy)
    end.define(conn, "web1-old", info.uuid, paths=copies)
    return info


def test_a_host_with_a_vm_of_its_uuid_does_not_take_it(end, conn, moving):
    """It would pass for the arriving VM: as arrived, or as the copy to remove."""
    with pytest.raises(ReservationRefused, match="VM 'web1-old' there has its UUID 4dea22b3-"):
        arrival.prepare(end.context, moving, "t1", "hyper1")

    assert end.record("arrival") is None
    assert end.hypervisor.files() == ["old_web1_0.raw", "old_web1_1.raw"]
    assert lifecycle.is_defined(conn, "web1-old")


def test_a_check_before_a_move_names_it_too(end, conn, moving):
    (reason,) = arrivalchecks.check(conn, end.settings, moving)

    assert reason.startswith(
        "VM 'web1-old' there has its UUID 4dea22b3-1d52-d8f3-2516-782e98ab3fa0; "
    )


def test_a_vm_of_the_same_name_is_named_once(end, conn, moving):
    lifecycle.undefine(conn, "web1-old")
    end.define(conn, "web1", moving.uuid)

    assert arrivalchecks.check(conn, end.settings, moving) == ["it already has a VM called web1"]


@pytest.mark.parametrize(("name", "reason_count"), [("web1-old", 1), ("web1", 0)])
def test_a_move_by_hand_is_refused_except_back_to_a_kept_definition(
    end, conn, moving, monkeypatch, name, reason_count
):
    monkeypatch.setattr(
        arrivalchecks.hostfacts, "capabilities", lambda _conn: {"arch": "i686", "guests": []}
    )
    monkeypatch.setattr(arrivalchecks.generation, "reasons", lambda *_: [])
    lifecycle.undefine(conn, "web1-old")
    end.define(conn, name, moving.uuid)

    assert len(arrivalchecks.unfit_reasons(conn, moving)) == reason_count
