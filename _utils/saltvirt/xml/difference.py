"""What a call changes in a definition, as lines."""

import copy
import difflib
import re
import xml.etree.ElementTree as ET

from saltvirt.xml import to_text

_SECRET = re.compile(r"""\b(passwd)=("[^"]*"|'[^']*')""")


def lines(now: ET.Element, then: ET.Element) -> list[str]:
    """Return the lines of a definition that go (``-``) and come (``+``), without passwords."""
    found = difflib.unified_diff(_lines(now), _lines(then), lineterm="", n=0)
    # The first two name files, which there are none of.
    return [_SECRET.sub(r'\1="…"', one) for one in list(found)[2:] if not one.startswith("@@")]


def _lines(root: ET.Element) -> list[str]:
    shown = copy.deepcopy(root)
    for one in shown.iter():
        # As libvirt and a call wrote it, it is indented in two ways.
        one.text = (one.text or "").strip() or None
        one.tail = None
    ET.indent(shown)
    return to_text(shown).splitlines()
