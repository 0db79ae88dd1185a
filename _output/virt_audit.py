"""Outputter ``virt_audit``: what falls short, each with where it is and its fix."""

import textwrap

_WIDTH = 80
_ROW = "{:<16} {}"


def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.audit``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.audit --out=virt_audit
    """
    if not isinstance(data, dict):
        return str(data)
    lines = _wrapped(f"error: {data['error']}", "") if "error" in data else []
    findings = data.get("findings", [])
    if findings:
        lines.append(_ROW.format("WHERE", "CHECK"))
    for one in findings:
        lines.append(_ROW.format(one["where"], one["check"]))
        lines += _wrapped(one["what"], "  ")
        lines += _wrapped(f"fix: {one['fix']}", "  ", "       ")
    if "checked" in data:
        looked = ", ".join(["master", *data["checked"]])
        verdict = "" if findings else ": nothing falls short"
        lines += _wrapped(f"looked at {looked}{verdict}", "")
    return "\n".join(lines)


def _wrapped(text, first, rest=None):
    """Wrap a text at the terminal's width; a word that is longer, such as a command's, stays."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
