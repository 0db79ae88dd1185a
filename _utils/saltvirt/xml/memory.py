"""<memory>, <currentMemory>, <maxMemory>, <memtune>, <memoryBacking>, <numatune>."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.units import size_kib
from saltvirt.xml import tag

_KEYS = {
    "boot", "current", "max", "slots", "hard_limit", "soft_limit", "swap_hard_limit",
    "min_guarantee", "hugepages", "nosharepages", "locked", "source", "access", "allocation",
    "discard",
}  # fmt: skip


def elements(mem):
    """Return the elements that a number of MiB or a ``mem`` mapping leads to."""
    if not isinstance(mem, dict):
        mem = {"boot": mem}
    refuse_unknown_keys("mem", mem, _KEYS)
    boot = mem.get("boot") or mem.get("current") or mem.get("max")
    slots = {"slots": mem.get("slots"), "unit": "KiB"}
    return [
        tag("maxMemory", slots, text=size_kib(mem["max"], "mem:max")) if mem.get("max") else None,
        tag("memory", {"unit": "KiB"}, text=size_kib(boot, "mem:boot")),
        tag(
            "currentMemory",
            {"unit": "KiB"},
            text=size_kib(mem.get("current") or boot, "mem:current"),
        ),
        _backing(mem),
        _tune(mem),
    ]


def _backing(mem):
    pages = [
        tag(
            "page",
            {
                "size": size_kib(page["size"], "mem:hugepages:size"),
                "unit": "KiB",
                "nodeset": page.get("nodeset"),
            },
        )
        for page in mem.get("hugepages") or ()
    ]
    children = [
        tag("hugepages", None, *pages) if mem.get("hugepages") else None,
        tag("nosharepages") if mem.get("nosharepages") else None,
        tag("locked") if mem.get("locked") else None,
        tag("source", {"type": mem["source"]}) if mem.get("source") else None,
        tag("access", {"mode": mem["access"]}) if mem.get("access") else None,
        tag("allocation", {"mode": mem["allocation"]}) if mem.get("allocation") else None,
        tag("discard") if mem.get("discard") else None,
    ]
    return tag("memoryBacking", None, *children) if any(c is not None for c in children) else None


def _tune(mem):
    limits = ("hard_limit", "soft_limit", "swap_hard_limit", "min_guarantee")
    rows = [
        tag(limit, {"unit": "KiB"}, text=size_kib(mem[limit], f"mem:{limit}"))
        for limit in limits
        if mem.get(limit) is not None
    ]
    return tag("memtune", None, *rows) if rows else None


def numatune(tune):
    """Return <numatune> of ``{memory: {mode, nodeset}, memnodes: {cell: {...}}}``."""
    if not tune:
        return None
    refuse_unknown_keys("numatune", tune, {"memory", "memnodes"})
    nodes = sorted((tune.get("memnodes") or {}).items(), key=lambda item: int(item[0]))
    return tag(
        "numatune",
        None,
        tag("memory", tune["memory"]) if tune.get("memory") else None,
        *[tag("memnode", {"cellid": cell, **rule}) for cell, rule in nodes],
    )
