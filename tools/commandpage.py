"""
Make ``docs/commands.md``, the page of all commands, and the texts of hosts' commands.

Both are made from docstrings. ``tests/env python3 tools/commandpage.py --write`` writes both files;
without ``--write`` the page is printed.
"""

import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_utils"))

from saltvirt.entry import commandhelp  # noqa: E402

PAGE = ROOT / "docs/commands.md"
TEXTS = ROOT / "_utils/saltvirt/entry/hostcommandtexts.py"
_WIDTH = 96
_HEAD = """# All commands

This page has every command, in the order in which you need them. In a terminal,
`salt-run virt.help` shows the same table, without a host:

- `salt-run virt.help disk` shows the commands that have `disk` in their name or sentence.
- `salt-run virt.help start` shows how one command is used: its arguments, an example, and its undo.

**Typed as**: `virt.start` of the master is typed as `salt-run virt.start NAME`. A command of a
host, such as `virt.list_pools`, is typed as `salt HOST virt.list_pools`.

The repository's `tools/commandpage.py` makes this page of the docstrings of the functions.
"""


def page() -> str:
    """Return the text of the page."""
    lines = [_HEAD]
    for task in commandhelp.report(ROOT / "_runners")["tasks"]:
        lines += [f"## {task['task']}\n", "| Command | On | Changes | What it does |"]
        lines.append("|---|---|---|---|")
        for row in task["commands"]:
            on = "the master" if row["on"] == "master" else "a host"
            changes = "yes" if row["changes"] else "no"
            does = row["does"].replace("|", "\\|")
            lines.append(f"| `{row['name']}` | {on} | {changes} | {does} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def host_texts() -> str:
    """Return the source of the file with the texts of hosts' commands."""
    before, _begin, rest = TEXTS.read_text().partition('_TEXTS = """\n')
    after = rest.partition('"""\n')[2]
    lines = []
    for name, text in sorted(commandhelp.read_hosts(ROOT / "_modules").items()):
        usage = " ".join((name, *text.words))
        lines += textwrap.wrap(usage, _WIDTH, subsequent_indent="        ")
        sentence = text.sentence.replace("\\", "\\\\")
        lines += textwrap.wrap(sentence, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f'{before}_TEXTS = """\n' + "\n".join(lines) + f'\n"""\n{after}'


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        TEXTS.write_text(host_texts())
        # The page has these texts: they are read anew.
        import importlib

        from saltvirt.entry import hostcommandtexts

        importlib.reload(hostcommandtexts)
        PAGE.write_text(page())
    else:
        print(page(), end="")
