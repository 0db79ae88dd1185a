"""Outputter ``virt_vms``: what a command returns of one VM, or of each of several."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_MAX_DEPTH = 64
_LONGEST = 8000


def output(data, **_kwargs):
    """
    Return the outcome of a command such as ``virt.start``: a line, or a table of several VMs.

    Each line of a text that has several is indented, so that it cannot imitate a row.

    CLI Example:

    .. code-block:: bash

        salt-run virt.start 'web*'
    """
    if not isinstance(data, dict):
        return _text.lines(data)
    lines = _text.wrapped(f"error: {data['error']}") if "error" in data else []
    rows = data.get("vms")
    if isinstance(rows, dict):
        lines += _several(rows)
        lines += _text.other_lines(_text.visible({"unreachable": _list(data, "unreachable")}))
    elif "error" not in data:
        lines += [line for host, vms in data.items() for line in _of_host(host, vms)]
    candidates = _text.visible(data.get("candidates", {}))
    return "\n".join([*lines, *_text.candidate_lines(candidates)])


def _list(data, key):
    return data[key] if isinstance(data.get(key), list) else []


def _of_host(host, vms):
    if not isinstance(vms, dict):
        yield from _block(host, vms)
        return
    for name, outcome in vms.items():
        yield from _block(f"{name} on {host}", outcome)


def _several(rows):
    checked = {
        name: row if isinstance(row, dict) else {"outcome": row} for name, row in rows.items()
    }
    if not all(isinstance(row.get("outcome"), str | None) for row in checked.values()):
        for name, row in checked.items():
            yield from _blocks(name, row)
        return
    if checked:
        cells = [
            (name, row.get("host"), _failure(row) or row.get("outcome") or "")
            for name, row in checked.items()
        ]
        yield from _text.table(("VM", "HOST", "OUTCOME"), cells)


def _failure(row):
    return None if row.get("error") is None else f"failed: {row['error']}"


def _blocks(name, row):
    """Yield the failure and the answer of one VM."""
    title = f"{name} on {row['host']}" if row.get("host") else name
    if _failure(row):
        yield from _text.wrapped(f"{title}: {_failure(row)}", "", "  ")
    if row.get("outcome") is not None:
        yield from _block(title, row["outcome"])


def _block(title, value):
    """Yield a title with a value behind it, or with the parts of the value below it."""
    if isinstance(value, dict) and isinstance(value.get("outcome"), str):
        value = value["outcome"]
    if isinstance(value, str) and "\n" not in value:
        yield from _text.wrapped(f"{title}: {value}", "", "  ")
    else:
        yield from _nested(_text.line(title), value, "")


def _nested(title, value, indent, depth=0):
    """Yield the lines of a value: a title with a text behind it, or with the parts below it."""
    if isinstance(value, dict | list) and value and depth < _MAX_DEPTH:
        yield f"{indent}{title}:"
        yield from _parts(value, f"{indent}  ", depth + 1)
    elif isinstance(value, str) and "\n" in value.rstrip("\n"):
        yield f"{indent}{title}:"
        for part in value.rstrip("\n").split("\n"):
            yield f"{indent}  {_text.escaped(part[:_LONGEST])}".rstrip()
    else:
        yield f"{indent}{title}: {_shown(value)}"


def _parts(value, indent, depth):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _nested(_text.line(key), item, indent, depth)
        return
    for item in value:
        is_nested = isinstance(item, dict | list) and item and depth < _MAX_DEPTH
        lines = [*_parts(item, f"{indent}  ", depth + 1)] if is_nested else [_shown(item)]
        first, *more_lines = lines
        yield f"{indent}- {first.lstrip()}"
        yield from more_lines


def _shown(value):
    return "none" if value in (None, [], {}, "") else _text.line(value)
