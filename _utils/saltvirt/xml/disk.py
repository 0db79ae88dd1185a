"""<disk>."""

from saltvirt.xml import tag


def element(disk):
    """Return the <disk> of a file, or an empty drive; the format is always said, never probed."""
    is_drive = disk.device in ("cdrom", "floppy")
    if disk.path is None and not is_drive:
        raise AssertionError(f"disk {disk.name} has no path yet")
    block = disk.path is not None and disk.path.startswith("/dev/")
    driver = {
        "name": "qemu",
        "type": disk.format or "raw",
        "io": disk.io,
        # Native I/O needs a cache that bypasses the host's.
        "cache": "none" if disk.io == "native" else None,
        "iothread": disk.iothread_id,
        "discard": None if is_drive else "unmap",
    }
    return tag(
        "disk",
        {"type": "block" if block else "file", "device": disk.device},
        tag("driver", driver),
        tag("source", {"dev" if block else "file": disk.path}) if disk.path else None,
        tag("target", {"dev": disk.target, "bus": disk.model}),
        tag("readonly") if disk.device == "cdrom" else None,
    )


def seed(path, target):
    """
    Return the <disk> of a NoCloud seed.

    A virtio disk, because cloud kernels have no AHCI; writable, because the guest wipes its
    private key off it; always raw, because the guest may write what it likes on it.
    """
    return tag(
        "disk",
        {"type": "file", "device": "disk"},
        tag("driver", {"name": "qemu", "type": "raw"}),
        tag("source", {"file": path}),
        tag("target", {"dev": target, "bus": "virtio"}),
        tag("serial", text="saltvirt-seed"),
    )
