"""<os>."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.errors import BadArgument
from saltvirt.xml import tag

_KEYS = {"kernel", "initrd", "cmdline", "loader", "nvram", "efi"}
_DEVICES = {"hd", "fd", "cdrom", "network"}


def devices(boot_dev):
    """Return the boot devices of ``"network hd"`` as a tuple; refuse one libvirt lacks."""
    listed = tuple(str(boot_dev or "hd").split())
    for device in listed:
        if device not in _DEVICES:
            known = ", ".join(sorted(_DEVICES))
            raise BadArgument("boot_dev", f"{device!r}; any of {known}, separated by spaces")
    return listed


def check(boot):
    """Refuse a ``boot`` mapping that cannot work."""
    if not boot:
        return
    refuse_unknown_keys("boot", boot, _KEYS)
    if boot.get("cmdline") and not boot.get("kernel"):
        raise BadArgument("boot", "'cmdline' needs 'kernel'")
    if boot.get("initrd") and not boot.get("kernel"):
        raise BadArgument("boot", "'initrd' needs 'kernel'")
    if bool(boot.get("loader")) != bool(boot.get("nvram")):
        raise BadArgument("boot", "'loader' and 'nvram' go together; or use 'efi: True'")
    if boot.get("efi") and boot.get("loader"):
        raise BadArgument("boot", "'efi: True' finds its own loader; leave 'loader' out")


def element(vm):
    """Return <os> of a VM whose ``boot`` names local files only."""
    boot = vm.boot or {}
    loader = boot.get("loader")
    return tag(
        "os",
        {"firmware": "efi" if boot.get("efi") else None},
        tag("type", {"arch": vm.arch, "machine": vm.machine}, text=vm.os_type or "hvm"),
        tag("loader", {"readonly": "yes", "type": "pflash"}, text=loader) if loader else None,
        tag("nvram", {"template": boot["nvram"]}) if loader else None,
        *[tag(key, text=boot[key]) for key in ("kernel", "initrd", "cmdline") if boot.get(key)],
        *[tag("boot", {"dev": device}) for device in vm.boot_dev],
    )
