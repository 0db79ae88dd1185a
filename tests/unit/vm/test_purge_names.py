"""VMs of any name that libvirt takes can be purged."""

from pathlib import Path

import pytest
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished

VM = """<domain type='test'><name>{}</name><memory unit='MiB'>64</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw'/><source file='{}'/><target dev='vda'/></disk></devices></domain>"""
NAMES = {
    "long": "x" * 247,
    "umlauts": "ü" * 123,
    "penguins": "\U0001f427" * 61,
    "option": "-rf",
    "quote": "a b'c",
    "star": "*",
}


@pytest.mark.parametrize("days", [0, 7])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_it_goes_with_its_disk_whatever_it_is_called(hypervisor, monkeypatch, tmp_path, name, days):
    logs, disk = tmp_path / "logs", Path(hypervisor.settings.images) / ("d" * 255)
    for folder in (logs, disk.parent):
        folder.mkdir()
    monkeypatch.setattr(unfinished, "console_log", lambda vm: f"{logs}/{vm}-console.log")
    disk.write_text("x")
    object.__setattr__(hypervisor.settings, "trash_days", days)
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format(name, disk))

        purge.purge(conn, hypervisor.settings, name)

    assert not disk.exists()
    assert hypervisor.open_records() == []
