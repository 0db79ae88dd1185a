"""List the functions of the installed Salt without loading its modules."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import salt

_MODULE = re.compile(r"""^__virtualname__ *= *["'](\w+)["']""", re.MULTILINE)
# A function, or an alias of a function.
_FUNCTION = re.compile(r"^(?:def (?=[A-Za-z]\w*\()|(?=[a-z]\w* *= .*alias_function))(\w+)", re.M)


@cache
def read_functions(kind: str) -> frozenset[str]:
    """
    Return the functions of a kind, such as ``cmd.run``.

    kind
        Salt's folder of their modules: ``modules``, ``runners`` or ``wheel``.
    """
    return frozenset(_read_functions(Path(salt.__file__).parent / kind))


def _read_functions(folder: Path) -> Iterator[str]:
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        module_match = _MODULE.search(text)
        modules = {path.stem, module_match[1]} if module_match else {path.stem}
        for function in _FUNCTION.finditer(text):
            # Salt offers list_ as list.
            name = function[1].rstrip("_")
            yield from (f"{module}.{name}" for module in modules)
