"""VMs with names from outside this project: libvirt allows more than this project gives."""

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


def recorded_order(master, name):
    """Return the order that is on record."""
    return records.read_record(orders.folder(master.opts), "order", name)


@pytest.mark.parametrize("name", NAMES)
def test_they_move(two, master, name):
    two.put(name, "h1")

    migrate.migrate(master, name, "h2", {})

    assert two.where(name) == ["h2"] and two.is_settled() and recorded_order(master, name) is None


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_move_of_them_is_settled(two, master, name):
    two.put(name, "h1")
    two.silent |= {("h2", "virt.migrate_prepare"), ("h2", "virt.migration_state")}
    with pytest.raises(VirtError, match=re.escape(f"virt.settle {shlex.quote(name)}, or if h2")):
        migrate.migrate(master, name, "h2", {})
    two.silent.clear()

    assert settle.settle_all(master) == {"settled": {name: "stays on h1"}}

    assert two.where(name) == ["h1"] and two.is_settled() and recorded_order(master, name) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_doctor_settles_an_order_of_them(two, master, name):
    two.put(name, "h1")
    two.silent |= {("h2", "virt.migrate_prepare"), ("h2", "virt.migration_state")}
    with pytest.raises(VirtError):
        migrate.migrate(master, name, "h2", {})
    two.silent.clear()
    finding = Finding("w", "f", check="order", where=MASTER, subject=name, mend="settles it")

    mended_lines, failed_lines = mend.mend(master, [finding], store.utc_now())

    assert (mended_lines, failed_lines) == ([f"order {name}: settled"], [])
    assert two.is_settled() and recorded_order(master, name) is None


def test_a_name_leads_to_no_file_of_another_folder(master, tmp_path):
    """A host may have such a name on record."""
    outside_file = orders.folder(master.opts).parent.parent / "x.json"
    outside_file.parent.mkdir(parents=True, exist_ok=True)
    outside_file.write_text("{}")

    with orders.opened(master.opts, "../x") as order:
        assert order.record is None

    assert outside_file.exists()
