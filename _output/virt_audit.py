"""Outputter ``virt_audit``: what was found, each with where it is and its fix."""

import textwrap

_WIDTH = 80
_ROW = "{:<16} {}"


def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.audit`` or ``virt.setup_check``.

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
        level = f" ({one['level']})" if "level" in one else ""
        lines.append(_ROW.format(one["where"], one["check"] + level))
        # Deeper than a fix begins: a host may have chosen some of these words.
        lines += _wrapped(one["what"], "  ", "    ")
        lines += _wrapped(f"fix: {one['fix']}", "  ", "       ")
    if "checked" in data:
        looked = ", ".join(["master", *data["checked"]])
        verdict = "" if findings or "ready" in data else ": nothing falls short"
        lines += _wrapped(f"looked at {looked}{verdict}", "")
    return "\n".join([*lines, *_wrapped(data.get("ready", ""), "")])


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
