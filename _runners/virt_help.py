"""
List the commands of this project, and explain them; no host is asked.

.. versionadded:: 1.1.0
"""

from pathlib import Path

from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.entry import commandhelp

__virtualname__ = "virt"
__virtual__ = load_always
__func_alias__ = {"help_": "help"}


@runner_function
def help_(word=None):
    """
    Show all commands by task, those that have a word, or how one is used.

    word
        A command's name, or a part of names and sentences. Defaults to all commands.

    Returns ``{"tasks": [{"task", "commands": [{"name", "on", "changes", "does"}]}]}``; ``on`` is
    ``master`` for the runner, ``hosts`` for functions that only hosts have. With a command's name
    ``{"command", "related"}``: its usage, arguments, examples and undo, and the other commands that
    have the word. Fails if no command has it.

    CLI Example:

    .. code-block:: bash

        salt-run virt.help
        salt-run virt.help disk
        salt-run virt.help start
    """
    text = None if word is None else arguments.text("word", word)
    return commandhelp.report(Path(__file__).parent, text)
