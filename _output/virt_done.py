"""Outputter ``virt_done``: what a command has done, in sentences."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)


def output(data, **_kwargs):
    """
    Return the sentences of a view, ``{said: [text]}``, or any other answer as indented lines.

    CLI Example:

    .. code-block:: bash

        salt-run virt.maintenance hyper1 on
    """
    if data is True:
        return "done"
    if isinstance(data, list | tuple):
        return "\n".join(map(_text.line, data)) or "none"
    return _of_mapping(data)


@_text.shows_mappings
def _of_mapping(data):
    if "error" in data:
        lines = [*_text.wrapped(f"error: {data['error']}"), *_text.other_lines(data)]
        return "\n".join([*lines, *_text.candidate_lines(data.get("candidates", {}))])
    return "\n".join(_text.said_lines(data) if "said" in data else _text.plain_lines(data))
