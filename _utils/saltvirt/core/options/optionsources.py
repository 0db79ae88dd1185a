"""Look up an option in several sources: the first that sets it wins."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from saltvirt.core.errors import BadConfig
from saltvirt.core.options.optionkinds import Kind


def option(sources: Iterable[Mapping[str, Any]], name: str) -> Any:
    """Return the first of ``virt:name`` and ``virt.name`` that a source has, else None."""
    return first_value(list(map(split_source, sources)), name)


def split_source(source: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return a source in the form that is fastest to read, and its mapping ``virt``."""
    # The wrapper of Salt's loader looks the source up again at each key.
    options = source.value() or {} if hasattr(source, "value") else source
    nested = options.get("virt")
    if nested is not None and not isinstance(nested, Mapping):
        # A value that is no text may have passwords in it.
        shown_value = repr(nested) if isinstance(nested, str) else "something else"
        raise BadConfig(f"option virt: expected a mapping, found {shown_value}")
    return options, nested or {}


def first_value(sources: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> Any:
    for source, nested in sources:
        value = nested.get(name)
        value = source.get(f"virt.{name}") if value is None else value
        if value is not None:
            return value
    return None


def merged_value(
    sources: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    name: str,
    kind: Kind | Mapping[str, Any],
) -> Any:
    """
    Return the first value of an option; of one with fixed keys, the first value of each key.

    ``virt:seed:master`` of the pillar counts beside ``virt:seed:limit_s`` of the minion's file, as
    each is an option; on Salt 3006 the same was true of ``virt:connection``.
    """
    value = first_value(sources, name)
    if len(sources) == 1 or isinstance(kind, Kind) or not isinstance(value, Mapping):
        return value
    values = [first_value([source], name) for source in sources]
    return _merge([item for item in values if isinstance(item, Mapping)], kind)


def _merge(mappings: Sequence[Mapping[str, Any]], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings; the first value of each key wins."""
    out: dict[str, Any] = {}
    for key in dict.fromkeys(key for mapping in mappings for key in mapping):
        values = [mapping[key] for mapping in mappings if mapping.get(key) is not None]
        kind = kinds.get(key)
        if isinstance(kind, Mapping) and values and isinstance(values[0], Mapping):
            out[key] = _merge([mapping for mapping in values if isinstance(mapping, Mapping)], kind)
        else:
            out[key] = values[0] if values else None
    return out


# Words below this ratio are not related.
_ALIKE = 0.75


def find_misspelt(
    sources: Iterable[Mapping[str, Any]], known_names: Collection[str]
) -> dict[str, str]:
    """
    Return unknown option names, each with the known name that it resembles.

    Names that resemble none are left out: other software may have options of its own there.
    """
    option_names: set[str] = set()
    for source in sources:
        options, nested = split_source(source)
        option_names |= {str(key) for key in nested}
        option_names |= {
            str(key).removeprefix("virt.") for key in options if str(key).startswith("virt.")
        }
    matches_by_name = {
        name: difflib.get_close_matches(name, sorted(known_names), n=1, cutoff=_ALIKE)
        for name in sorted(option_names - {*known_names})
    }
    return {name: matches[0] for name, matches in matches_by_name.items() if matches}
