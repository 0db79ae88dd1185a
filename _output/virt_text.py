"""
What the outputters of Salt Virt share: texts made visible, and wrapped so that they can be copied.

They read this file themselves each time they are loaded, and do not import the library, of which a
long-lived process would keep the old code.
"""

import re
import textwrap
import unicodedata

# What Salt's loader takes of this file.
__load__ = ("output",)
# Of a terminal of 80 columns: the last two stay free, as some wrap at the 80th.
WIDTH = 78
# Of one text within an answer; a word of megabytes would take textwrap hours.
_LONGEST = 8000
_MAX_DEPTH = 64
_MAX_MARKS = 4
# Letters and marks that show nothing, though Unicode counts them as printable, as in terminal.py.
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    r"\U0001d159\U00016fe4\U000e0100-\U000e01ef]"
)
# A command ends before a word that no argument is, or with a sign that ends a part of a sentence.
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
# It is in no text that is visible.
_GLUE = "\0"


def output(data, **_kwargs):
    """
    Return an answer that is a text with its lines, each of them visible.

    CLI Example:

    .. code-block:: bash

        salt-run virt.console_log centos1 --out=virt_text
    """
    return lines(data)


def visible(data, depth=0):
    """
    Return plain data whose keys and texts have nothing that a terminal would obey, hide or reorder.

    What is not visible is written as Python writes it: ``\\x1b``, ``\\u202e``. A text is cut after
    8000 characters.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
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
            # Two keys may look alike once they are visible.
            while name in out:
                name = f"{name}'"
            out[name] = visible(value, depth + 1)
        return out
    return [visible(value, depth + 1) for value in data]


def escaped(text):
    """
    Return a text whose characters are all visible, as Python writes them: ``\\x1b``, ``\\u202e``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
    """
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
    """
    Return an answer that is a text with its lines, each of them visible.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
    """
    return "\n".join(map(escaped, str(text).split("\n")))


def line(text):
    """
    Return what is given as one visible line, line breaks as spaces.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
    """
    return escaped(" ".join(str(text)[: 2 * _LONGEST].split()))


def wrapped(text, first_indent="", next_indent=None, width=WIDTH):
    """
    Return the lines of a text, in which each command, path and URL is whole.

    first, rest
        The indents of the first line and of the others. ``rest`` defaults to ``first``.
    width
        Columns. What is longer and cannot be broken stays longer. Defaults to 78.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
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
