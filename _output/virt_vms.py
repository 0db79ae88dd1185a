"""Outputter ``virt_vms``: what has become of one VM, or of each of several."""

import importlib.util
import json
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_NAME, _HOST = 18, 16
_INDENT = " " * (_NAME + _HOST + 2)


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the outcome of a command such as ``virt.start``: a line, or a table of several VMs.

    CLI Example:

    .. code-block:: bash

        salt-run virt.start 'web*'
    """
    lines = _text.wrapped(f"error: {data['error']}") if "error" in data else []
    rows = data.get("vms")
    if isinstance(rows, dict):
        lines += _table(rows)
        lines += [f"{host} {_text.NO_ANSWER}" for host in data.get("unreachable", ())]
    elif "error" not in data:
        lines += [line for host, vms in data.items() for line in _of_host(host, vms)]
    return "\n".join(lines)


def _of_host(host, vms):
    if not isinstance(vms, dict):
        yield f"{host}: {_shown(vms)}"
        return
    for name, outcome in vms.items():
        yield from _text.wrapped(f"{name} on {host}: {_shown(outcome)}", "", "  ")


def _table(rows):
    if rows:
        yield f"{'VM':<{_NAME}} {'HOST':<{_HOST}} OUTCOME"
    for name, row in rows.items():
        row = row if isinstance(row, dict) else {"outcome": row}
        error, host = row.get("error"), str(row.get("host") or "-")
        text = f"failed: {error}" if error is not None else _shown(row.get("outcome"))
        first, *more_lines = _text.wrapped(text, width=_text.WIDTH - len(_INDENT)) or [""]
        start = f"{name:<{_NAME}} {host:<{_HOST}} "
        if len(name) > _NAME or len(host) > _HOST:
            # A long name has a line of its own, and the columns keep their places.
            yield f"{name} {host}"
            start = _INDENT
        yield f"{start}{first}".rstrip()
        yield from (f"{_INDENT}{line}" for line in more_lines)


def _shown(outcome):
    if isinstance(outcome, str):
        return outcome
    return json.dumps(outcome, ensure_ascii=False, default=str)
