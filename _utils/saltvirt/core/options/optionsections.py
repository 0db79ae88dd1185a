"""The options of a source that are remembered, and their return into a source."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from saltvirt.core.errors import BadConfig
from saltvirt.core.options import optionsources

Section = dict[str, Any]


def read_section(names: Collection[str], source: Mapping[str, Any]) -> Section | None:
    """Return the options of a source to remember; None if it has no ``virt:`` at all."""
    if "virt" not in source and not any(str(key).startswith("virt.") for key in source):
        return None
    source_pairs = [optionsources.split_source(source)]
    values = {name: optionsources.first_value(source_pairs, name) for name in names}
    kept_values = {
        name: _without_secrets(name, value) for name, value in values.items() if value is not None
    }
    return {name: value for name, value in sorted(kept_values.items()) if value is not None}


def _without_secrets(name: str, value: Any) -> Any:
    """Return an option's value to remember, without secrets."""
    if name == "connection":
        value = {"uri": value["uri"]} if isinstance(value, Mapping) and value.get("uri") else None
    if name == "vnc":
        if not isinstance(value, Mapping):
            return None
        has_password = value.get("password") is not None
        value = {**{key: item for key, item in value.items() if key != "password"}}
        value |= {"password": True} if has_password else {}
    # In the form in which the file is read again.
    return json.loads(json.dumps(value, default=str))


def restore_section(section: Section, source_options: Mapping[str, Any]) -> Section:
    """
    Return remembered options with the secrets that a source still has.

    source_options
        The options that the source has below ``virt:`` now.
    """
    out = dict(section)
    auth, password = (
        _nested_value(source_options, "connection", "auth"),
        _nested_value(source_options, "vnc", "password"),
    )
    if auth and "connection" in section:
        out["connection"] = {**section["connection"], "auth": auth}
    if section.get("vnc", {}).get("password"):
        missing = BadConfig("option virt:vnc: its password is not remembered, and is missing now")
        out["vnc"] = {**section["vnc"], "password": password} if password else missing
    return out


def _nested_value(source_options: Mapping[str, Any], name: str, key: str) -> Any:
    option = source_options.get(name)
    return option.get(key) if isinstance(option, Mapping) else None


def replace_section(
    names: Collection[str], source: Mapping[str, Any], section: Section
) -> Mapping[str, Any]:
    """Return a source with the remembered options in place of its own."""
    _all, nested = optionsources.split_source(source)
    dotted = {key: item for key, item in source.items() if str(key).startswith("virt.")}
    return {
        **{key: item for key, item in dotted.items() if str(key)[5:] not in names},
        "virt": {
            **{key: item for key, item in nested.items() if key not in names},
            **restore_section(section, nested),
        },
    }
