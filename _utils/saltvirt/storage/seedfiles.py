"""Names of seed files, which hold keys."""

from pathlib import Path

from saltvirt.xml.domain import sysinfo

# By kind; ``raw`` is the former name of a seed for cloud-init, before seeds were qcow2.
_ENDS = {
    "nocloud": "_seed.iso.qcow2",
    "raw": "_seed.iso",
    "credentials": sysinfo.CREDENTIAL_FILE,
}


def path(images: str, name: str, kind: str) -> str:
    """Return the path of a VM's seed of a kind, such as ``nocloud``, in the image folder."""
    return str(Path(images) / f"{name}{_ENDS[kind]}")


def all_paths(images: str, name: str) -> list[str]:
    """Return all paths that a VM's seeds may have."""
    return [path(images, name, kind) for kind in _ENDS]


def kept_paths(images: str, name: str) -> list[str]:
    """Return the candidate paths of a VM's permanent seed: the current name, then the former."""
    return [path(images, name, kind) for kind in ("nocloud", "raw")]


def is_seed(file: str | Path) -> bool:
    """Return whether a file is a VM's seed, by its name."""
    return str(file).endswith(tuple(_ENDS.values()))
