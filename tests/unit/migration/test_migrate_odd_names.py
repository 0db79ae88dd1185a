"""VMs whose names others have given them: libvirt allows more than this project gives."""

import re
import shlex

import pytest
from saltvirt.ca import store
from saltvirt.checks.doctor.master import mend
from saltvirt.cluster import orders
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import MASTER, Finding
from saltvirt.core.journal import records
from saltvirt.migration.master import migrate, settle

NAMES = ["my vm", "Windows 10 (Büro)", "a..b", "x" * 100, "%41", "Ж" * 120]


def left(master, name):
    """Return the order that is on record."""
    return records.read_record(orders.folder(master.opts), "order", name)


@pytest.mark.parametrize("name", NAMES)
def test_they_move(two, master, name):
    two.put(name, "h1")

    migrate.migrate(master, name, "h2", {})

    assert two.where(name) == ["h2"] and two.is_settled() and left(master, name) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_move_of_them_that_was_cut_off_is_settled(two, master, name):
    two.put(name, "h1")
    two.silent |= {("h2", "virt.migrate_prepare"), ("h2", "virt.migration_state")}
    with pytest.raises(VirtError, match=re.escape(f"virt.settle {shlex.quote(name)}, or if h2")):
        migrate.migrate(master, name, "h2", {})
    two.silent.clear()

    assert settle.settle_all(master) == {"settled": {name: "stays on h1"}}

    assert two.where(name) == ["h1"] and two.is_settled() and left(master, name) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_doctor_settles_an_order_of_them(two, master, name):
    two.put(name, "h1")
    two.silent |= {("h2", "virt.migrate_prepare"), ("h2", "virt.migration_state")}
    with pytest.raises(VirtError):
        migrate.migrate(master, name, "h2", {})
    two.silent.clear()
    found = Finding("w", "f", check="order", where=MASTER, subject=name, mend="settles it")

    done, failed = mend.mend(master, [found], store.utc_now())

    assert (done, failed) == ([f"order {name}: settled"], [])
    assert two.is_settled() and left(master, name) is None


def test_a_name_leads_to_no_file_of_another_folder(master, tmp_path):
    """A host could have it on record."""
    other = orders.folder(master.opts).parent.parent / "x.json"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("{}")

    with orders.opened(master.opts, "../x") as order:
        assert order.record is None

    assert other.exists()
