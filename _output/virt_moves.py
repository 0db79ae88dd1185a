"""Outputter ``virt_moves``: the new hosts of VMs, and the reasons of VMs that stay."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_INDENT = 18
# Outcomes of virt.init_many.
_BUILT = {
    "plan": "would go to {}",
    "built": "is on {}",
    "exists": "is on {} already",
    "purged": "was purged from {} again",
}
_WHY = (("stays", "stays"), ("failed", "failed"), ("left", "left"), ("warnings", "warning"))


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the table of ``salt-run virt.evacuate``, ``restore``, ``rebalance`` or ``init_many``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper3 dry_run=True
    """
    # The remedies stand below the table.
    error = str(data.get("error", "")).partition("; what helps: ")[0]
    lines = _text.wrapped(f"error: {error}") if error else []
    rows = [*_rows(data)]
    if rows:
        lines.append(f"{'VM':<{_INDENT}}WHERE")
    for name, outcome in rows:
        if len(name) > _INDENT - 2:
            lines.append(name)
            name = ""
        first, *more_lines = _wrapped(outcome, " " * _INDENT)
        lines += [f"{name:<{_INDENT}}{first.lstrip()}", *more_lines]
    lines = lines or [_empty_line(data)]
    lines += [f"{host} {_text.NO_ANSWER}" for host in data.get("unreachable", ())]
    if data.get("helps"):
        lines += ["what helps:", *(line for cure in data["helps"] for line in _remedy_lines(cure))]
    if "imbalance" in data:
        lines.append(f"loads differ by {data['imbalance']:.2f}")
    return "\n".join(lines)


def _rows(data):
    """Yield ``(name, outcome)``, the VMs that moved first."""
    moves = data.get("moves", ())
    if isinstance(moves, dict):
        yield from ((name, f"would move to {host}") for name, host in moves.items())
    else:
        yield from ((step["name"], _step(step)) for step in moves)
    for key, words in _BUILT.items():
        yield from ((name, words.format(host)) for name, host in data.get(key, {}).items())
    yield from ((name, f"moved to {host}") for name, host in data.get("moved", {}).items())
    yield from ((name, f"is on {host} now") for name, host in data.get("elsewhere", {}).items())
    yield from ((name, "was removed") for name in data.get("gone", ()))
    for key, word in _WHY:
        yield from (
            (name, f"{word}: {_join_reasons(reason)}")
            for name, reason in sorted(data.get(key, {}).items())
        )


def _join_reasons(reasons):
    return reasons if isinstance(reasons, str) else "; ".join(reasons)


def _step(step):
    return f"from {step['from']} to {step['to']}, gain {step['gain']:.2f}"


def _empty_line(data):
    return f"{data['host']}: nothing to move" if "host" in data else "nothing to move"


def _remedy_lines(cure):
    first, *more_lines = _wrapped(cure, "    ")
    return [f"  - {first.lstrip()}", *more_lines]


def _wrapped(text, indent):
    return _text.wrapped(text, indent) or [indent]
