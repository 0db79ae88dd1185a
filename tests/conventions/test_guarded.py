"""Every function that changes something is guarded against missing options."""

import ast
from pathlib import Path

import pytest
import trees
from saltvirt.cluster import masterconfig

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "_modules").glob("[a-z]*.py"))
STATES = sorted((ROOT / "_states").glob("[a-z]*.py"))
RUNNERS = sorted((ROOT / "_runners").glob("[a-z]*.py"))
# Functions that are let in beside those of saltvirt.core.salt.lookonly.
HARMLESS = {
    "virt_answers": "signed",
    "virt_pool": "pool_refresh",
}
# What ends, or takes back, what was begun before the options were missing.
FINISHES = {
    "guestfs": "umount",
    "qemu_nbd": "clear",
    "virt_answers": "refuse_order",
    "virt_answers_moves": "migrate_step migrate_push",
    "virt_migrate": "evacuated migrate_cancel migrate_start_postcopy",
}
# Functions whose signature is read, so that they may not be wrapped.
ITSELF = {"virt_change": "update"}
# Single calls of the others.
LOOKS_IF = {"virt": {"init"}}
FINISHES_IF = {
    "virt_answers_moves": {"migrate_prepare"},
    "virt_image": {"image_prune"},
    "virt_key": {"authorized"},
    "virt_migrate": {"migrate"},
}


def last_call(path):
    """Return ``(function, positional arguments, {keyword: node})`` of a file's last statement."""
    last = trees.tree(path).body[-1]
    assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call), "it is not guarded"
    call = last.value
    words = {one.arg: one.value for one in call.keywords}
    return ast.unparse(call.func), [ast.unparse(one) for one in call.args], words


def named(words, kind):
    """Return the functions that a file names."""
    return set(ast.literal_eval(words[kind]).split()) if kind in words else set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_guarded_but_for_its_functions_that_look_or_finish(path):
    function, given, words = last_call(path)
    name = path.stem
    defined = {one.name for one in trees.tree(path).body if isinstance(one, ast.FunctionDef)}

    assert (function, given) == ("optionguard.modules", ["globals()"])
    for kind, listed in (("harmless", HARMLESS), ("finishes", FINISHES), ("itself", ITSELF)):
        assert named(words, kind) == set(listed.get(name, "").split()) <= defined
    for kind, listed in (("looks_if", LOOKS_IF), ("finishes_if", FINISHES_IF)):
        keys = words[kind].keys if kind in words else []
        assert {one.value for one in keys} == listed.get(name, set()) <= defined


@pytest.mark.parametrize("name", ITSELF)
def test_a_function_that_is_not_wrapped_is_guarded_in_its_body(name):
    for function in trees.tree(ROOT / f"_modules/{name}.py").body:
        if getattr(function, "name", None) in ITSELF[name].split():
            assert "optionguard.refuse_change(globals()," in ast.unparse(function)


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.stem)
def test_all_states_are_guarded(path):
    assert last_call(path) == ("optionguard.states", ["globals()"], {})


def test_every_runner_function_is_one_that_looks_or_is_guarded():
    defined = set()
    for path in RUNNERS:
        names = [ast.unparse(one) for one in trees.tree(path).body if isinstance(one, ast.Assign)]
        module = next(
            (line.split("'")[1] for line in names if line.startswith("__virtualname__")), path.stem
        )
        for one in trees.tree(path).body:
            if isinstance(one, ast.FunctionDef) and one.name[0] != "_":
                # All go through the one wrapper, which asks.
                assert "runner_function" in " ".join(map(ast.unparse, one.decorator_list)), one.name
                defined.add(f"{module}.{one.name.rstrip('_')}")

    assert defined >= masterconfig.READ_ONLY | masterconfig.NARROWS
