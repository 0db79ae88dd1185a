"""The entries of a host's trash, and their age."""

import json
from pathlib import Path

from saltvirt.libvirt import reservations
from saltvirt.storage import trash

DISKS = ["web1_data.qcow2", "web1_system.qcow2"]


def names(host):
    """Return the names of the files that the trash lists."""
    return [
        Path(path).name
        for row in trash.list_entries(host.settings).values()
        for path in row["files"]
    ]


def entry(host):
    """Return the name of the only entry."""
    (entry_name,) = trash.list_entries(host.settings)
    return entry_name


def older(host, days):
    """Make the entries of the trash older."""
    for path in (reservations.folder(host.settings) / trash.PURPOSE).glob("*.json"):
        record = json.loads(path.read_text())
        record["since"] -= days * 86400
        if record["facts"]["due"]:
            record["facts"]["due"] -= days * 86400
        path.write_text(json.dumps(record))
