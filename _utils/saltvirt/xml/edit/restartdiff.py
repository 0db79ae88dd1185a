"""
Whether the next start of a running domain needs the same from its host.

Both definitions of each VM are compared for each request for the host's free resources, and few
differ: parsing the second takes several times as long as comparing the texts.
"""

import re

# The lines about CPUs, memory or a disk.
_ABOUT = "vcpu|memory|maxMemory|size|hugepages|cell|memnode"
_RELEVANT = re.compile(f"<(?:{_ABOUT}|driver |source (?:file|dev|pool)=)")


def has_same_demand(running_xml: str, next_xml: str) -> bool:
    """
    Return whether the next start needs the same; False is only a reason to parse the XML.

    running_xml, next_xml
        The XML of the running domain, and of its next start, as libvirt writes both: a line for
        each element.
    """
    # Without one of the sizes, another may apply to all of the memory.
    if _pages(running_xml) != _pages(next_xml):
        return False
    running_lines = set(running_xml.splitlines())
    return not any(
        _is_new(line, running_xml) for line in next_xml.splitlines() if line not in running_lines
    )


def _pages(text: str) -> list[str]:
    return [line for line in text.splitlines() if "<page " in line] if "<page " in text else []


def _is_new(line: str, running_xml: str) -> bool:
    if not _RELEVANT.search(line):
        return False
    # A line of the running domain may have more attributes at its end. Backing files are indented
    # deeper.
    return "\n" + line.removesuffix("/>").removesuffix(">") not in running_xml
