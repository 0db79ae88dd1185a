"""Outputter ``virt_progress``: a line for each progress event."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)


def output(data, **_kwargs):
    """
    Return the line of one progress event.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
    """
    if not isinstance(data, dict):
        return _text.lines(data)
    return _text.escaped(str(data.get("event", {}).get("message", "")))
