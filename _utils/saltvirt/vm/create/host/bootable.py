"""Whether a new VM can boot from its image; pure functions."""

from collections.abc import Iterator, Mapping

from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import ImageError
from saltvirt.core.model import Disk, Vm
from saltvirt.storage.images.validation import ValidatedImage

_EFI = "boot='{efi: True}'"
_NO_IMAGE = "no image was given: its disk is empty"
# Architectures without a BIOS.
_UEFI_ALONE = ("aarch64", "riscv64", "loongarch64")


def refuse_unbootable(
    vm: Vm, images: Mapping[str, ValidatedImage | None], *, is_seeded: bool
) -> None:
    """Raise ImageError if a guest is to be seeded, but cannot boot from its image."""
    reason = _find_obstacle(vm, images)
    if reason and is_seeded:
        raise ImageError(f"{reason}; give {_EFI}, or seed=False if it boots otherwise")


def boot_warnings(
    vm: Vm, images: Mapping[str, ValidatedImage | None], *, is_seeded: bool
) -> Iterator[str]:
    """Yield warnings about how a VM boots, one line each."""
    reason = _find_obstacle(vm, images)
    if reason and not is_seeded:
        yield f"{reason}; to boot from it, give {_EFI}"
    if _is_empty(vm):
        yield _NO_IMAGE


def _find_obstacle(vm: Vm, images: Mapping[str, ValidatedImage | None]) -> str | None:
    """Return the reason why a VM cannot boot from its image, None if it can or may."""
    image = next((disk.image for disk in vm.disks if disk.image), None)
    validated_image = images.get(image) if image else None
    boot = vm.boot or {}
    boots_otherwise = vm.boot_dev[:1] != ("hd",) or vm.os_type not in (None, "hvm")
    if (
        validated_image is None
        or boots_otherwise
        or any(boot.get(key) for key in ("efi", "loader", "kernel"))
    ):
        return None
    if vm.arch in _UEFI_ALONE:
        return f"a VM of {vm.arch} has no BIOS, and boots from a disk by UEFI alone"
    if validated_image.needs_uefi:
        return (
            f"image {hide_credentials(image)} boots by UEFI alone (it has an EFI system partition, "
            "and no boot code for a BIOS), and this VM has a BIOS"
        )
    return None


def _is_empty(vm: Vm) -> bool:
    """Return whether a VM has a disk, but nothing to boot from."""
    disks = [disk for disk in vm.disks if disk.device == "disk"]
    boots_otherwise = "network" in vm.boot_dev or bool((vm.boot or {}).get("kernel"))
    return bool(disks) and not boots_otherwise and not any(map(_has_content, vm.disks))


def _has_content(disk: Disk) -> bool:
    sources = (disk.image, disk.source_file, disk.backing_path, disk.elsewhere, disk.volume)
    return any(sources) or disk.device == "lun"
