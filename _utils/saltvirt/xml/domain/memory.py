"""<maxMemory>, <memory>, <currentMemory>, <memoryBacking>, <memtune>: the elements of `mem`."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import mappings, refuse_unknown_keys, whole_number
from saltvirt.core.errors import BadArgument
from saltvirt.core.units import human, size_kib
from saltvirt.xml import element, fields, flag, texts
from saltvirt.xml.edit.merging import merge

_LIMITS = ("hard_limit", "soft_limit", "swap_hard_limit", "min_guarantee")
_BACKING = ("hugepages", "nosharepages", "locked", "source", "access", "allocation", "discard")
# QEMU's memory is in whole MiB.
_ROUNDED_KIB = 1024
# QEMU starts no VM with more.
_MOST_SLOTS = 256
_KEYS = {"boot", "current", "max", "slots", *_LIMITS, *_BACKING}


@element.declare("page")
class Page:
    """A size of huge pages and the NUMA cells that get them."""

    size_kib: int | None = fields.value(".", fields.kib_attribute("size"))
    nodeset: str | None = fields.attribute("@nodeset", default=None)


@element.declare("memoryBacking")
class Backing:
    """The content of a <memoryBacking>; ``hugepages`` without a size are the host's usual ones."""

    hugepages: tuple[Page, ...] | None = fields.children("hugepages", default=None)
    nosharepages: bool = fields.presence("nosharepages", default=False)
    locked: bool = fields.presence("locked", default=False)
    source: dict[str, str] | None = fields.bag("source", default=None)
    access: dict[str, str] | None = fields.bag("access", default=None)
    allocation: dict[str, str] | None = fields.bag("allocation", default=None)
    discard: bool = fields.presence("discard", default=False)


@element.declare()
class Memory:
    """The memory of a domain; ``maximum_kib`` is the limit of its growth by hotplug."""

    slots: str | None = fields.attribute("maxMemory/@slots", default=None)
    maximum_kib: int | None = fields.value("maxMemory", fields.KIB, default=None)
    size_kib: int = fields.value("memory", fields.KIB, missing=0)
    current_kib: int = fields.value("currentMemory", fields.KIB, missing_as="size_kib")
    backing: Backing = fields.child(default_factory=Backing)
    limits_kib: dict[str, int] = fields.tagged(
        "memtune", *_LIMITS, form=fields.KIB, default_factory=dict
    )


build, read = element.build_parts, element.reader(Memory)


def from_call(mem: int | Mapping[str, Any]) -> Memory:
    """Return the memory for a number of MiB or a ``mem`` mapping."""
    if not isinstance(mem, Mapping):
        mem = {"boot": mem}
    refuse_unknown_keys("mem", mem, _KEYS)
    _refuse_empty(mem)
    boot = mem.get("boot") or mem.get("current") or mem.get("max")
    maximum = size_kib(mem["max"], "mem:max") if mem.get("max") else None
    _refuse_small_maximum(maximum, size_kib(boot, "mem:boot"))
    # Without a maximum, slots have no use.
    has_slots = maximum is not None and mem.get("slots") is not None
    return Memory(
        size_kib=size_kib(boot, "mem:boot"),
        current_kib=size_kib(mem.get("current") or boot, "mem:current"),
        maximum_kib=maximum,
        slots=str(whole_number("mem:slots", mem["slots"], most=_MOST_SLOTS)) if has_slots else None,
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
        source=_single_attribute("type", mem.get("source")),
        access=_single_attribute("mode", mem.get("access")),
        allocation=_single_attribute("mode", mem.get("allocation")),
        discard=bool(flag(mem.get("discard"))),
    )


def _single_attribute(attribute: str, value: Any) -> dict[str, str] | None:
    return texts({attribute: value}) if value else None


def most_kib(root: ET.Element) -> int:
    """Return the memory that a domain can have without hotplug."""
    element = root.find("memory")
    return 0 if element is None else fields.KIB.load(element) or 0


def current_kib(root: ET.Element) -> int:
    """Return the memory that a domain has, as its balloon leaves it."""
    element = root.find("currentMemory")
    return (0 if element is None else fields.KIB.load(element) or 0) or most_kib(root)


def apply_changes(current: Memory, changes: int | Mapping[str, Any]) -> Memory:
    """
    Return the memory of a domain with the changes of a call.

    changes
        MiB, or a mapping; null removes a value, and what is not given stays.
    """
    changes = changes if isinstance(changes, Mapping) else {"boot": changes, "current": changes}
    requested = from_call(merge(_to_call(current), changes))
    # Keys that a call does not name may have values that no call can give.
    unchanged_fields = {
        key: getattr(current.backing, key) for key in _BACKING if key not in changes
    }
    size_kib = _ignore_rounding(current.size_kib, requested.size_kib)
    return replace(
        requested,
        backing=replace(
            _keep_nodeless_pages(current.backing, requested.backing), **unchanged_fields
        ),
        size_kib=size_kib,
        # libvirt lowers a current memory above the memory to the memory.
        current_kib=min(_ignore_rounding(current.current_kib, requested.current_kib), size_kib),
        maximum_kib=_ignore_rounding(current.maximum_kib, requested.maximum_kib),
    )


def _keep_nodeless_pages(current: Backing, requested: Backing) -> Backing:
    """Return the request, but keep pages of node 0 that libvirt keeps without a node."""
    # For a guest without cells libvirt omits the node: it would be a change each time.
    requested_pages = requested.hugepages or ()
    current_pages = current.hugepages or ()
    if len(requested_pages) != len(current_pages):
        return requested
    merged_pages = [
        old if replace(new, nodeset=None) == old and new.nodeset == "0" else new
        for old, new in zip(current_pages, requested_pages, strict=True)
    ]
    return replace(requested, hugepages=tuple(merged_pages) or None)


def _ignore_rounding(current: Any, requested: Any) -> Any:
    """Return the current value if QEMU has only rounded the requested one."""
    is_rounded = current and requested and abs(current - requested) < _ROUNDED_KIB
    return current if is_rounded else requested


def _to_call(memory: Memory) -> dict[str, Any]:
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
    call = {
        **{key: f"{size}KiB" for key, size in sizes.items() if size is not None},
        "slots": memory.slots,
        "hugepages": pages or None,
        **ways,
        **flags,
    }
    return {key: value for key, value in call.items() if value is not None}
