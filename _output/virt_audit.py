"""Outputter ``virt_audit``: findings, each with its place and its fix."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_ROW = "{:<16} {}"


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.audit`` or ``virt.setup_check``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.audit --out=virt_audit
    """
    lines = _text.wrapped(f"error: {data['error']}") if "error" in data else []
    findings = data.get("findings", [])
    if findings:
        lines.append(_ROW.format("WHERE", "CHECK"))
    for finding in findings:
        level = f" ({finding['level']})" if "level" in finding else ""
        lines.append(_ROW.format(finding["where"], finding["check"] + level))
        # Deeper than a fix begins: a host may have chosen some of these words to forge one.
        lines += _text.wrapped(finding["what"], "  ", "    ")
        lines += _text.wrapped(f"fix: {finding['fix']}", "  ", "       ")
    if "checked" in data:
        checked_names = ", ".join(["master", *data["checked"]])
        verdict = "" if findings or "ready" in data else ": no findings"
        lines += _text.wrapped(f"checked {checked_names}{verdict}")
    return "\n".join([*lines, *_text.wrapped(data.get("ready", ""))])
