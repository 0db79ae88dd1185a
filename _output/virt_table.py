"""Outputter ``virt_table``: a table, with the sentences below it."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the table of a view: ``{titles, rows, sizes, headings, said}``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.list
    """
    if "error" in data:
        return "\n".join([*_text.wrapped(f"error: {data['error']}"), *_text.other_lines(data)])
    if "rows" not in data:
        return "\n".join(_text.plain_lines(data))
    lines = []
    if data["rows"]:
        parts = [data.get(key, ()) for key in ("sizes", "headings")]
        lines = _text.table(data["titles"], data["rows"], *parts)
    return "\n".join([*lines, *_text.said_lines(data)])
