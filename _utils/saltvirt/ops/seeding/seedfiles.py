"""What the files of seeds are called, which hold keys."""

from pathlib import Path

from saltvirt.xml import sysinfo

# By what is made; ``raw`` is what cloud-init was given before the seed was a qcow2.
_ENDS = {
    "nocloud": "_seed.iso.qcow2",
    "raw": "_seed.iso",
    "credentials": sysinfo.CREDENTIAL_FILE,
}


def path(images: str, name: str, kind: str) -> str:
    """Return where a VM's seed lies in the image folder: ``nocloud`` or ``credentials``."""
    return str(Path(images) / f"{name}{_ENDS[kind]}")


def all_paths(images: str, name: str) -> list[str]:
    """Return where a VM's seeds may lie."""
    return [path(images, name, kind) for kind in _ENDS]


def kept_paths(images: str, name: str) -> list[str]:
    """Return where the seed may lie that a VM keeps: as it is made, then as it was made."""
    return [path(images, name, kind) for kind in ("nocloud", "raw")]


def is_seed(file: str | Path) -> bool:
    """Return whether a file is a VM's seed, by its name."""
    return str(file).endswith(tuple(_ENDS.values()))
