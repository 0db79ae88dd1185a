"""The changes of a call to a definition, as lines."""

import copy
import difflib
import re
import xml.etree.ElementTree as ET

from saltvirt.xml import to_text

_SECRET = re.compile(r"""\b(passwd)=("[^"]*"|'[^']*')""")


def lines(old: ET.Element, new: ET.Element) -> list[str]:
    """Return removed (``-``) and added (``+``) lines of a definition, without passwords."""
    diff_lines = difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=0)
    # The first two lines are for names of files.
    return [
        _SECRET.sub(r'\1="…"', line) for line in list(diff_lines)[2:] if not line.startswith("@@")
    ]


def _lines(root: ET.Element) -> list[str]:
    shown = copy.deepcopy(root)
    for element in shown.iter():
        # libvirt and calls indent in different ways.
        element.text = (element.text or "").strip() or None
        element.tail = None
    ET.indent(shown)
    return to_text(shown).splitlines()
