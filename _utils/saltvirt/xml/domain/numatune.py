"""<numatune>."""

from collections.abc import Mapping
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.xml import element, fields, texts
from saltvirt.xml.edit.merging import merge


@element.declare("numatune")
class Numatune:
    """The content of a <numatune>, as its elements' attributes."""

    memory: dict[str, str] | None = fields.bag("memory", default=None)
    memnodes: tuple[dict[str, str], ...] = fields.values("memnode", default=())


build = element.build


def from_call(tune: Mapping[str, Any] | None) -> Numatune | None:
    """Return the <numatune> for ``{memory: {mode, nodeset}, memnodes: {cell: {...}}}``."""
    if not tune:
        return None
    refuse_unknown_keys("numatune", tune, {"memory", "memnodes"})
    nodes = sorted((tune.get("memnodes") or {}).items(), key=lambda item: int(item[0]))
    return Numatune(
        memory=texts(tune["memory"]) if tune.get("memory") else None,
        memnodes=tuple(texts({"cellid": cell, **rule}) for cell, rule in nodes),
    )


def apply_changes(current: Numatune | None, changes: Mapping[str, Any]) -> Numatune | None:
    """Return a <numatune> with a call's changes; null removes, and what is not given stays."""
    call: dict[str, Any] = {}
    if current is not None:
        nodes = {node.get("cellid", ""): _without_id(node) for node in current.memnodes}
        call = {"memory": current.memory or {}, "memnodes": nodes}
    requested = from_call(merge(call, changes))
    return requested if requested is not None and (requested.memory or requested.memnodes) else None


def _without_id(node: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in node.items() if key != "cellid"}
