"""<maxMemory>, <memory>, <currentMemory>, <memoryBacking>, <memtune>: what `mem` leads to."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.arguments import mappings, refuse_unknown_keys, whole
from saltvirt.errors import BadArgument
from saltvirt.units import human, size_kib
from saltvirt.xml import attributes_of, bag, flag, kib, tag, texts
from saltvirt.xml.merging import merged

_LIMITS = ("hard_limit", "soft_limit", "swap_hard_limit", "min_guarantee")
_BACKING = ("hugepages", "nosharepages", "locked", "source", "access", "allocation", "discard")
# QEMU's memory is in whole MiB.
_ROUNDED_KIB = 1024
# QEMU starts no VM with more.
_MOST_SLOTS = 256
_KEYS = {"boot", "current", "max", "slots", *_LIMITS, *_BACKING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A size of huge pages and the NUMA cells that get them."""

    size_kib: int | None
    nodeset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What a <memoryBacking> says; ``hugepages`` without a size are the host's usual ones."""

    hugepages: tuple[Page, ...] | None = None
    nosharepages: bool = False
    locked: bool = False
    source: dict[str, str] | None = None
    access: dict[str, str] | None = None
    allocation: dict[str, str] | None = None
    discard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a domain says of its memory; ``maximum_kib`` is what it can grow to by hotplug."""

    size_kib: int
    current_kib: int
    maximum_kib: int | None = None
    slots: str | None = None
    backing: Backing = Backing()
    limits_kib: dict[str, int] = field(default_factory=dict)


def of(mem: int | Mapping[str, Any]) -> Memory:
    """Return what a number of MiB or a ``mem`` mapping leads to."""
    if not isinstance(mem, Mapping):
        mem = {"boot": mem}
    refuse_unknown_keys("mem", mem, _KEYS)
    _refuse_empty(mem)
    boot = mem.get("boot") or mem.get("current") or mem.get("max")
    maximum = size_kib(mem["max"], "mem:max") if mem.get("max") else None
    _refuse_small_maximum(maximum, size_kib(boot, "mem:boot"))
    # Without the most there can be, nothing is made of them.
    has_slots = maximum is not None and mem.get("slots") is not None
    return Memory(
        size_kib=size_kib(boot, "mem:boot"),
        current_kib=size_kib(mem.get("current") or boot, "mem:current"),
        maximum_kib=maximum,
        slots=str(whole("mem:slots", mem["slots"], most=_MOST_SLOTS)) if has_slots else None,
        backing=_backing(mem),
        limits_kib={
            limit: size_kib(mem[limit], f"mem:{limit}")
            for limit in _LIMITS
            if mem.get(limit) is not None
        },
    )


def _refuse_empty(mem: Mapping[str, Any]) -> None:
    for key in ("boot", "current", "max"):
        if mem.get(key) == "":
            raise BadArgument(f"mem:{key}", "'' is not a size: write 512 (MiB), 4g or '512 MiB'")


def _refuse_small_maximum(maximum: int | None, boot: int) -> None:
    if maximum is not None and maximum < boot:
        most, least = human(maximum * 1024), human(boot * 1024)
        raise BadArgument("mem:max", f"{most} is less than boot, {least}; give a larger max")


def _backing(mem: Mapping[str, Any]) -> Backing:
    pages = tuple(
        Page(
            size_kib=size_kib(page.get("size"), "mem:hugepages:size"),
            nodeset=str(page["nodeset"]) if page.get("nodeset") is not None else None,
        )
        for page in mappings("mem:hugepages", mem.get("hugepages") or ()) or ()
    )
    return Backing(
        hugepages=pages or None,
        nosharepages=bool(flag(mem.get("nosharepages"))),
        locked=bool(flag(mem.get("locked"))),
        source=_way("type", mem.get("source")),
        access=_way("mode", mem.get("access")),
        allocation=_way("mode", mem.get("allocation")),
        discard=bool(flag(mem.get("discard"))),
    )


def _way(attribute: str, value: Any) -> dict[str, str] | None:
    return texts({attribute: value}) if value else None


def build(memory: Memory) -> list[ET.Element]:
    """Return the elements, in libvirt's order."""
    maximum = {"slots": memory.slots, "unit": "KiB"}
    found = [
        tag("maxMemory", maximum, text=memory.maximum_kib)
        if memory.maximum_kib is not None
        else None,
        tag("memory", {"unit": "KiB"}, text=memory.size_kib),
        tag("currentMemory", {"unit": "KiB"}, text=memory.current_kib),
        _build_backing(memory.backing),
        _build_limits(memory.limits_kib),
    ]
    return [element for element in found if element is not None]


def _build_backing(backing: Backing) -> ET.Element | None:
    if backing == Backing():
        return None
    return tag(
        "memoryBacking",
        None,
        _build_pages(backing.hugepages),
        tag("nosharepages") if backing.nosharepages else None,
        tag("locked") if backing.locked else None,
        bag("source", backing.source),
        bag("access", backing.access),
        bag("allocation", backing.allocation),
        tag("discard") if backing.discard else None,
    )


def _build_pages(pages: tuple[Page, ...] | None) -> ET.Element | None:
    if pages is None:
        return None
    rows = [
        tag("page", {"size": page.size_kib, "unit": "KiB", "nodeset": page.nodeset})
        for page in pages
    ]
    return tag("hugepages", None, *rows)


def _build_limits(limits_kib: dict[str, int]) -> ET.Element | None:
    rows = [tag(limit, {"unit": "KiB"}, text=size) for limit, size in limits_kib.items()]
    return tag("memtune", None, *rows) if rows else None


def most_kib(root: ET.Element) -> int:
    """Return the memory that a domain can have without being given more by hotplug."""
    return _amount(root.find("memory")) or 0


def read(root: ET.Element) -> Memory:
    """Return what a domain says of its memory."""
    size = most_kib(root)
    current = _amount(root.find("currentMemory"))
    most = root.find("maxMemory")
    maximum = _amount(most)
    limits = {limit: _amount(root.find(f"memtune/{limit}")) for limit in _LIMITS}
    return Memory(
        size_kib=size,
        current_kib=size if current is None else current,
        maximum_kib=maximum,
        slots=most.get("slots") if most is not None and maximum is not None else None,
        backing=_read_backing(root.find("memoryBacking")),
        limits_kib={limit: amount for limit, amount in limits.items() if amount is not None},
    )


def _amount(element: ET.Element | None) -> int | None:
    return None if element is None else kib(element.text, element.get("unit"))


def _read_backing(element: ET.Element | None) -> Backing:
    if element is None:
        return Backing()
    pages = element.find("hugepages")
    rows = None
    if pages is not None:
        rows = tuple(
            Page(size_kib=kib(page.get("size"), page.get("unit")), nodeset=page.get("nodeset"))
            for page in pages.iterfind("page")
        )
    return Backing(
        hugepages=rows,
        nosharepages=element.find("nosharepages") is not None,
        locked=element.find("locked") is not None,
        source=attributes_of(element.find("source")),
        access=attributes_of(element.find("access")),
        allocation=attributes_of(element.find("allocation")),
        discard=element.find("discard") is not None,
    )


def changed(now: Memory, given: int | Mapping[str, Any]) -> Memory:
    """
    Return the memory that a domain has when a call has changed it.

    given
        MiB, or a mapping of which null removes and what is not given stays.
    """
    given = given if isinstance(given, Mapping) else {"boot": given, "current": given}
    wanted = of(merged(_call(now), given))
    # What a call does not name may say more than a call can.
    kept = {key: getattr(now.backing, key) for key in _BACKING if key not in given}
    size_kib = _about(now.size_kib, wanted.size_kib)
    return replace(
        wanted,
        backing=replace(_on_its_nodes(now.backing, wanted.backing), **kept),
        size_kib=size_kib,
        # libvirt makes more than there is as much as there is.
        current_kib=min(_about(now.current_kib, wanted.current_kib), size_kib),
        maximum_kib=_about(now.maximum_kib, wanted.maximum_kib),
    )


def _on_its_nodes(now: Backing, wanted: Backing) -> Backing:
    """Return what is wanted, but for pages of node 0 that libvirt keeps without a node."""
    # Where the guest has no cells it leaves that out, and it would be a change each time.
    pages = wanted.hugepages or ()
    has = now.hugepages or ()
    if len(pages) != len(has):
        return wanted
    kept = [
        old if replace(new, nodeset=None) == old and new.nodeset == "0" else new
        for old, new in zip(has, pages, strict=True)
    ]
    return replace(wanted, hugepages=tuple(kept) or None)


def _about(now: Any, wanted: Any) -> Any:
    """Return what there is if QEMU has only rounded what is wanted."""
    is_rounded = now and wanted and abs(now - wanted) < _ROUNDED_KIB
    return now if is_rounded else wanted


def _call(memory: Memory) -> dict[str, Any]:
    """Return the call's mapping that leads to a domain's memory."""
    backing = memory.backing
    sizes = {
        "boot": memory.size_kib,
        "current": memory.current_kib,
        "max": memory.maximum_kib,
        **memory.limits_kib,
    }
    ways = {
        "source": (backing.source or {}).get("type"),
        "access": (backing.access or {}).get("mode"),
        "allocation": (backing.allocation or {}).get("mode"),
    }
    flags = {key: getattr(backing, key) for key in ("nosharepages", "locked", "discard")}
    pages = [
        {"size": f"{page.size_kib}KiB", "nodeset": page.nodeset} for page in backing.hugepages or ()
    ]
    given = {
        **{key: f"{size}KiB" for key, size in sizes.items() if size is not None},
        "slots": memory.slots,
        "hugepages": pages or None,
        **ways,
        **flags,
    }
    return {key: value for key, value in given.items() if value is not None}
