"""
Shared functions of the outputters: escape and wrap texts, and keep commands copyable.

The outputters execute this file each time they are loaded. They do not import the library, because
a long-lived process would keep its old code.
"""

import functools
import re
import textwrap
import unicodedata

# The only function that Salt's loader takes from this file.
__load__ = ("output",)
# Leaves two of 80 columns free, because some terminals wrap at the 80th.
WIDTH = 78
# Limit of one text in an answer; a word of megabytes would take textwrap hours.
_LONGEST = 8000
_MAX_DEPTH = 64
_MAX_MARKS = 4
# Invisible letters and marks that Unicode counts as printable, as in terminal.py.
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    r"\U0001d159\U00016fe4\U000e0100-\U000e01ef]"
)
# Why an unresponsive host has no usable answer, as in the library's core/findings.py.
NO_ANSWER = "does not answer"
# A command ends before a word that cannot be an argument, or at a punctuation mark.
_PROSE = (
    "a|again|all|an|and|as|at|before|brings?|by|can|cannot|does|ends?|fails?|fetches|first|for|from|"
    "gives?|has|have|if|in|into|is|it|lists?|looks?|makes?|may|must|no|nor|not|of|once|or|says|"
    "shows?|so|tells?|than|that|the|then|there|to|until|was|what|when|where|which|while|will|with|"
    "would"
)
_WORD = rf"(?!(?:{_PROSE})(?:[\s,;.)]|$)|salt[\s-])(?:'[^']*'|\"[^\"]*\"|[^\s'\"();,])+"
_COMMAND = re.compile(
    r"(?<![\w./'\"-])(?:salt-(?:call|cloud|key|pip|run|ssh)|salt (?:'[^']*'|[^\s;,]+) \w+\.\w+"
    r"|systemctl|virsh|journalctl|qemu-img|ssh|sudo)(?: " + _WORD + r"){1,16}"
)
_QUOTED = re.compile(r"`[^`]*`")
# Sources of an address other than the host: a host learns its neighbours on a bridge from packets
# that they send.
_SOURCES = {
    "minion": "reported by the VM",
    "agent": "reported by the guest's agent",
    "neighbours": "learned from the VM's network packets",
    "arp": "learned from the VM's network packets",
}
# Never in an escaped text.
_GLUE = "\0"


def output(data, **_kwargs):
    """
    Return a text answer with its lines escaped.

    CLI Example:

    .. code-block:: bash

        salt-run virt.console_log centos1 --out=virt_text
    """
    return lines(data)


def shows_mappings(function):
    """Return an outputter that gets mappings with escaped texts, and shows other data as text."""

    @functools.wraps(function)
    def show(data, **kwargs):
        return function(visible(data), **kwargs) if isinstance(data, dict) else lines(data)

    return show


def address_source(vm):
    """Return a note on the source of a VM's addresses, an empty text if that is the host itself."""
    source = _SOURCES.get(str(vm.get("addresses_from")))
    return f" ({source})" if source else ""


def candidate_lines(candidates):
    """Yield the lines of minions that may become hypervisors, with the fingerprints of keys."""
    for minion, candidate in sorted(candidates.items()):
        guest = f"; but it is a VM on {', '.join(candidate['vm_on'])}" if candidate["vm_on"] else ""
        yield f"{minion:<16} {candidate['why']}{guest}"
        yield f"  {candidate['fingerprint']}"


def visible(data, depth=0):
    """
    Return plain data without characters that a terminal would obey, hide or reorder.

    These are escaped as in Python: ``\\x1b``, ``\\u202e``. A text is cut after
    8000 characters.
    """
    if isinstance(data, str):
        if depth:
            data = data.replace("\n", " ")
        return escaped(data if len(data) <= _LONGEST else f"{data[:_LONGEST]} ...")
    if not isinstance(data, dict | list | tuple):
        return data
    if depth == _MAX_DEPTH:
        return "..."
    if isinstance(data, dict):
        out = {}
        for key, value in data.items():
            name = visible(key) if isinstance(key, str) else key
            # Two keys may be equal after escaping.
            while name in out:
                name = f"{name}'"
            out[name] = visible(value, depth + 1)
        return out
    return [visible(value, depth + 1) for value in data]


def escaped(text):
    """Return a text with invisible characters escaped as in Python: ``\\x1b``, ``\\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    out, marks = [], _MAX_MARKS
    for char in text:
        is_mark = not char.isascii() and unicodedata.category(char)[0] == "M"
        marks = marks + 1 if is_mark else 0
        is_plain = char.isprintable() and marks <= _MAX_MARKS and not _BLANK.match(char)
        out.append(char if is_plain else char.encode("unicode_escape").decode())
    return "".join(out)


def lines(text):
    """Return a text answer with its lines escaped."""
    return "\n".join(map(escaped, str(text).split("\n")))


def line(text):
    """Return a value as one escaped line, with spaces for line breaks."""
    return escaped(" ".join(str(text)[: 2 * _LONGEST].split()))


def wrapped(text, first_indent="", next_indent=None, width=WIDTH):
    """
    Return the lines of a text, in which each command, path and URL is whole.

    first_indent, next_indent
        The indents of the first line and of the others. ``next_indent`` defaults to
        ``first_indent``.
    width
        Columns; unbreakable parts may be longer. Defaults to 78.
    """
    text = line(text)
    for pattern in (_QUOTED, _COMMAND):
        text = pattern.sub(lambda match: match[0].replace(" ", _GLUE), text)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first_indent,
        subsequent_indent=first_indent if next_indent is None else next_indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [part.replace(_GLUE, " ") for part in lines]
