"""
The prefixes of XML namespaces, which Python's parser forgets.

Without them each foreign namespace, such as that of libosinfo in <metadata>, would be written as
``ns0``, and users would not recognize their own elements.
"""

import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from xml.sax.saxutils import unescape

_DECLARED = re.compile(r"""\sxmlns:([A-Za-z_][\w.-]*)\s*=\s*(?:"([^"<]*)"|'([^'<]*)')""")
# Prefixes that Python makes for unknown namespaces.
_GENERATED = re.compile(r"ns\d+")
# The limit of remembered prefixes: documents must not fill the memory of a long-lived process.
_MOST = 1000
_LOCK = threading.Lock()
# {URI: prefix}: those of this project, and those of the documents that were read.
_FIXED: dict[str, str] = {}
_LEARNED: dict[str, str] = {}


def keep(prefix: str, uri: str) -> None:
    """Fix the prefix of a namespace; documents do not change it."""
    _FIXED[uri] = prefix


def learn(text: str) -> None:
    """Remember the prefixes that a document declares."""
    if "xmlns:" not in text:
        return
    for prefix, double, single in _DECLARED.findall(text):
        uri = unescape(double or single, {"&quot;": '"', "&apos;": "'"})
        if uri in _FIXED or _GENERATED.fullmatch(prefix) or prefix == "xml":
            continue
        if len(_LEARNED) < _MOST or uri in _LEARNED:
            _LEARNED[uri] = prefix


def tostring(element: ET.Element) -> str:
    """Return an element as text, with the prefixes that are known."""
    uris_by_prefix = dict(_find_prefixes(element))
    # Python has one table of prefixes for all documents.
    with _LOCK:
        for prefix, uri in uris_by_prefix.items():
            ET.register_namespace(prefix, uri)
        return ET.tostring(element, encoding="unicode")


def _find_prefixes(element: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield ``(prefix, URI)`` of an element's namespaces; a prefix of two is for the first."""
    used_prefixes = set()
    for uri in _uris(element):
        prefix = _FIXED.get(uri) or _LEARNED.get(uri)
        if prefix is not None and prefix not in used_prefixes:
            used_prefixes.add(prefix)
            yield prefix, uri


def _uris(element: ET.Element) -> dict[str, None]:
    """Return the namespaces of an element and all in it, in their order."""
    names = (
        name
        for node in element.iter()
        for name in (node.tag, *node.attrib)
        if isinstance(name, str) and name.startswith("{")
    )
    return dict.fromkeys(name[1:].partition("}")[0] for name in names)
