"""Every runner function takes a host by ``host=``, and by the older word where there is one."""

import ast
import inspect
from pathlib import Path

import pytest
from saltvirt.cluster import masterconfig
from saltvirt.core import hostwords
from saltvirt.core.errors import BadArgument

RUNNERS = Path(__file__).parents[3] / "_runners"
# What a parameter with a host may be called, beside host.
WORDS = {"hyper", "hypervisor", "hosts", "node", "target", "to", "minion", "server", "machine"}
# Those that are no host: the kind of virtualization.
OTHERS = {("init", "hypervisor")}


def functions():
    """Yield the public functions of the runner, and the files that they are in."""
    for path in sorted(RUNNERS.glob("virt*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield path.stem, node


def parameters(node):
    """Return the names of all parameters of a function."""
    given = node.args
    several = [argument for argument in (given.vararg,) if argument is not None]
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several)}


def test_each_function_with_another_word_for_a_host_takes_host_too():
    other_words = {
        (node.name, word): parameters(node)
        for _file, node in functions()
        for word in parameters(node) & WORDS
        if (node.name, word) not in OTHERS
    }

    assert {name for name, _word in other_words} == {
        *("allow", "disallow", "list_", "migrate", "revoke", "setup_check")
    }
    assert [key for key, names in other_words.items() if "host" not in names] == []


def test_the_docstrings_name_both_words():
    for file, node in functions():
        for word in parameters(node) & WORDS:
            if (node.name, word) not in OTHERS:
                lines = inspect.cleandoc(ast.get_docstring(node) or "").splitlines()
                named = {f"{word}, host", f"host, {word}"}
                assert named & set(lines), f"{file}.{node.name} has {word} without host"


def test_a_call_gives_one_of_the_two_words():
    assert hostwords.either("h1", "target", None) == "h1"
    assert hostwords.either(None, "target", "h1") == "h1"
    assert hostwords.either("h1", "target", "h1") == "h1"
    assert hostwords.either(None, "target", None) is None
    with pytest.raises(BadArgument, match="'h1' and target='h2': give one of the two"):
        hostwords.either("h1", "target", "h2")


def test_host_may_name_several():
    assert hostwords.several(None, ("h1", "h2")) == ("h1", "h2")
    assert hostwords.several("h1,h2", ()) == ("h1", "h2")
    assert hostwords.several(["h1"], ()) == ("h1",)
    assert hostwords.several(None, ()) == ()
    with pytest.raises(BadArgument, match="give one of the two"):
        hostwords.several("h1", ("h2",))


def test_allowing_by_host_is_a_change():
    assert masterconfig.is_read_only("virt.allow", {"host": None})
    assert not masterconfig.is_read_only("virt.allow", {"host": "h1"})
    assert not masterconfig.is_read_only("virt.allow", {"hosts": ("h1",)})
