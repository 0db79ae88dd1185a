"""
Shared functions of the outputters: escape and wrap texts, and keep commands copyable.

The outputters execute this file each time they are loaded. They do not import the library, because
a long-lived process would keep its old code.
"""

import functools
import re
import shutil
import textwrap
import unicodedata

# The only function that Salt's loader takes from this file.
__load__ = ("output",)
# Columns of a terminal of unknown width, as of a pipe, and the least that texts are wrapped to.
_UNKNOWN_WIDTH, _LEAST_WIDTH = 80, 40
# Free columns at the right edge, because some terminals wrap at the last one.
_EDGE = 2
# Columns between two columns of a table, and the least that a table wraps a cell's text to.
_GAP, _LEAST_CELL = 2, 16
_MIB, _GIB = 2**20, 2**30
# What is right-aligned: 7, 0.5, <0.1, -2/8.
_NUMBER = re.compile(r"<?-?\d+(?:\.\d+)?(?:/\d+(?:\.\d+)?)?")
# Limit of one text in an answer; a word of megabytes would take textwrap hours.
_LONGEST = 8000
_MAX_DEPTH = 64
# The names of a list that are shown, and the limit of one reason of a host.
_MOST_NAMES, _LONGEST_REASON = 20, 1000
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
# Commands, and paths with spaces.
_QUOTED = re.compile(r"`[^`]*`|(?<!\w)'/[^']{1,500}'(?!\w)")
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


def terminal_width():
    """Return the columns that texts and tables may take: the terminal's, 80 if unknown."""
    columns = shutil.get_terminal_size((_UNKNOWN_WIDTH, 24)).columns
    return max(columns, _LEAST_WIDTH) - _EDGE


def wrapped(text, first_indent="", next_indent=None, width=None):
    """
    Return the lines of a text, in which each command, path and URL is whole.

    first_indent, next_indent
        The indents of the first line and of the others. ``next_indent`` defaults to
        ``first_indent``.
    width
        Columns; unbreakable parts may be longer. Defaults to the terminal's.
    """
    text = line(text)
    for pattern in (_QUOTED, _COMMAND):
        text = pattern.sub(lambda match: match[0].replace(" ", _GLUE), text)
    lines = textwrap.wrap(
        text,
        width or terminal_width(),
        initial_indent=first_indent,
        subsequent_indent=first_indent if next_indent is None else next_indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [part.replace(_GLUE, " ") for part in lines]


def table(titles, rows, sizes=(), headings=()):
    """
    Return the lines of a table that is as wide as it needs to be, at most as the terminal.

    rows
        Lists of cells: texts, numbers, None for what is not known.
    sizes
        The titles of columns with bytes. All sizes of a table have one unit, which stands below
        their titles: GiB with one digit, or MiB if all are smaller than 1 GiB.
    headings
        Pairs of a row's number and the line above that row, after an empty line.

    The widest texts are wrapped if the terminal is narrow. A name in the first column is never cut:
    a long one has a line of its own. Numbers are right-aligned.
    """
    columns = range(len(titles))
    size_columns = set(filter(lambda number: titles[number] in sizes, columns))
    unit, unit_bytes = _choose_unit(row[number] for row in rows for number in size_columns)
    heads = [list(titles)]
    if unit:
        heads.append([unit if number in size_columns else "" for number in columns])
    body = [_cells(row, size_columns, unit_bytes) for row in rows]
    numeric = set(filter(functools.partial(_is_numeric, body), columns[1:]))
    all_rows = [*heads, *body]
    widths = [max(map(len, column)) for column in zip(*all_rows, strict=True)]
    limits = _limit_widths(body, widths, numeric)
    above = {number + len(heads): text for number, text in headings}
    out = []
    for number, row in enumerate(all_rows):
        out += ["", line(above[number])] if number in above else []
        out += _row_lines(row, limits, numeric)
    return out


def _cells(row, size_columns, unit_bytes):
    return [
        _cell(value, unit_bytes if number in size_columns else 0)
        for number, value in enumerate(row)
    ]


def _is_numeric(body, number):
    """Return whether a column has numbers, and nothing else."""
    texts = {row[number] for row in body} - {"-"}
    return bool(texts) and all(map(_NUMBER.fullmatch, texts))


def _choose_unit(values):
    """Return ``(unit, its bytes)`` of a table's sizes; an empty unit if there are none."""
    known = [value for value in values if _is_number(value)]
    if not known:
        return "", 1
    return ("GiB", _GIB) if max(known) >= _GIB else ("MiB", _MIB)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value, unit_bytes):
    if value is None or value == "":
        return "-"
    if not unit_bytes or not _is_number(value):
        return line(value)
    if unit_bytes == _MIB:
        return f"{value / _MIB:.0f}"
    # A size that is not 0 does not look like 0.
    return "<0.1" if 0 < value < unit_bytes / 20 else f"{value / unit_bytes:.1f}"


def _limit_widths(body, widths, numeric):
    """Return the widths of columns in this terminal: texts wrapped first, then long names."""
    limits = list(widths)

    def least(number):
        # What cannot be broken keeps its column as wide.
        longest = max(
            (len(part) for row in body for part in wrapped(row[number], width=1)), default=0
        )
        return min(limits[number], max(_LEAST_CELL, longest))

    def excess():
        return sum(limits) + _GAP * (len(limits) - 1) - terminal_width()

    texts = [number for number in range(1, len(limits)) if number not in numeric]
    for number in sorted(texts, key=lambda number: -limits[number]):
        if excess() > 0:
            limits[number] = max(least(number), limits[number] - excess())
    if excess() > 0 and limits:
        limits[0] = max(min(limits[0], _LEAST_CELL), limits[0] - excess())
    return limits


def _row_lines(row, limits, numeric):
    """Yield the lines of one row."""
    cells = [
        [text]
        if number in numeric or len(text) <= limits[number]
        else wrapped(text, width=limits[number])
        for number, text in enumerate(row)
    ]
    if len(row[0]) > limits[0]:
        yield row[0]
        cells[0] = [""]
    for number in range(max(map(len, cells))):
        texts = [parts[number] if number < len(parts) else "" for parts in cells]
        columns = [
            f"{text:>{limits[column]}}" if column in numeric else f"{text:<{limits[column]}}"
            for column, text in enumerate(texts)
        ]
        yield (" " * _GAP).join(columns).rstrip()


def other_lines(data):
    """Return the lines of what stands beside answers: hosts without one, VMs on several hosts."""
    out = [f"{host}: {NO_ANSWER}" for host in data.get("unreachable", ())]
    for host, reason in sorted(data.get("failed", {}).items()):
        out += wrapped(f"{host}: {str(reason)[:_LONGEST_REASON]}", next_indent="  ")
    for host, names in sorted(data.get("last_seen", {}).items()):
        text = f"{host}: had {join_some(names)} when it was last asked"
        out += wrapped(text, next_indent="  ")
    for name, hosts in sorted(data.get("duplicates", {}).items()):
        text = f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts"
        out += wrapped(text, next_indent="  ")
    return out


def join_some(names):
    """Return the first names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def said_lines(data):
    """Return the lines of a view's sentences; one that begins with spaces keeps them."""
    out = []
    for text in data.get("said", ()):
        indent = " " * (len(text) - len(text.lstrip()))
        out += wrapped(text, indent, f"{indent}  ") or [""]
    return out


def plain_lines(data, indent=""):
    """Return any answer as indented lines: one line for each value, none for braces and dashes."""
    out = []
    for key, value in data.items():
        if isinstance(value, dict) and value:
            out += [f"{indent}{line(key)}:", *plain_lines(value, f"{indent}  ")]
        else:
            out += wrapped(f"{key}: {_plain_text(value)}", indent, f"{indent}  ")
    return out


def _plain_text(value):
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain_text, value)) or "none"
    return "-" if value is None or value == {} else str(value)
