"""
Whether what a running domain is started with next asks its host for anything else.

Both definitions of each VM of a host are looked at whenever somebody asks what is left there, and
few differ: to parse the second takes several times as long as to compare the texts.
"""

import re

# What a line says that is about CPUs, memory or a disk.
_ABOUT = "vcpu|memory|maxMemory|size|hugepages|cell|memnode"
_RELEVANT = re.compile(f"<(?:{_ABOUT}|driver |source (?:file|dev|pool)=)")


def has_same_demand(running_xml: str, next_xml: str) -> bool:
    """
    Return whether a domain asks for nothing else; False is only a reason to parse it.

    now, then
        The XML that it runs with, and that of its next start, as libvirt writes both: a line for
        each element.
    """
    # A size that is left out may leave another one to all of the memory.
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
    # That of a running one has more attributes at its end. What is below a disk is indented deeper.
    return "\n" + line.removesuffix("/>").removesuffix(">") not in running_xml
