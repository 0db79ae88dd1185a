"""<domainsnapshot>."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from saltvirt.xml import leaf, parse, tag
from saltvirt.xml.edit import readdomain

# Where the state of one disk, or of the memory, is kept.
EXTERNAL, INTERNAL = "external", "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    The content of a <domainsnapshot>.

    It is not declared: its files are in two elements, its disks and the domain that it repeats.

    places
        Where the states of memory and disks are kept: ``internal``, ``external``, ``no``.
    files
        The disk files that have their states in them.
    reverted
        The disk files that a revert goes back to, wherever their states are.
    overlays
        Files of ``reverted`` that may have backing files.
    later_files
        The files in which the disks went on when the snapshot was taken.
    """

    name: str
    created_s: int = 0
    state: str | None = None
    parent: str | None = None
    places: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    overlays: tuple[str, ...] = ()
    later_files: tuple[str, ...] = ()

    @property
    def is_external(self) -> bool:
        """Whether any of its states is in a file of its own."""
        return EXTERNAL in self.places

    @property
    def is_running(self) -> bool:
        """Whether it has the state of a guest that runs."""
        return self.state == "running"

    @property
    def has_memory(self) -> bool:
        """Whether a guest continues in it where it was, with its clock and its connections."""
        return self.state in ("running", "paused") and not self.is_external


def build_new(name: str) -> ET.Element:
    """Return the <domainsnapshot> of a snapshot to be taken; libvirt fills in the rest."""
    return tag("domainsnapshot", None, leaf("name", name))


def read(text: str) -> Snapshot:
    """Return the content of a <domainsnapshot>."""
    root = parse(text)
    elements = [root.find("memory"), *root.iterfind("disks/disk")]
    return Snapshot(
        name=root.findtext("name", ""),
        created_s=int(root.findtext("creationTime", "0")),
        state=root.findtext("state"),
        parent=root.findtext("parent/name"),
        places=tuple(element.get("snapshot", "") for element in elements if element is not None),
        files=tuple(_files(root, {INTERNAL})),
        reverted=tuple(_files(root, {INTERNAL, EXTERNAL})),
        overlays=tuple(_files(root, {INTERNAL, EXTERNAL}, excluded_format="raw")),
        later_files=tuple(_find_later_files(root)),
    )


def _files(root: ET.Element, places: set[str], excluded_format: str | None = None) -> Iterator[str]:
    within = {
        disk.get("name") for disk in root.iterfind("disks/disk") if disk.get("snapshot") in places
    }
    domain = root.find("domain")
    for disk in [] if domain is None else readdomain.disk_sources(domain):
        is_selected = disk["target"] in within and (
            excluded_format is None or disk["format"] != excluded_format
        )
        if is_selected and disk["path"] is not None:
            yield disk["path"]


def _find_later_files(root: ET.Element) -> Iterator[str]:
    for source in root.iterfind("disks/disk/source"):
        path = source.get("file") or source.get("dev")
        if path:
            yield path
