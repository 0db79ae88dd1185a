"""
The functions of a Salt module's file, and what their docstrings say: read from its syntax tree.

No function is loaded or run. The docstrings have a fixed form: a first sentence, the arguments
with indented texts, remarks, and a block with examples.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_SENTENCE = re.compile(r"(.+?\.)(?=\s|$)", re.DOTALL)
_UNDO = re.compile(r"\bUndo: (.+?)\.(?=\s|$)", re.DOTALL)
_ARGUMENTS = re.compile(r"(\w+(?:, \w+)*)\n {4}\S")
_EXAMPLES = "CLI Example"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionText:
    """
    What the source of a function says.

    name
        As users type it, with its module: ``virt.list``.
    aliases
        Its other names, in the same form.
    words
        Its arguments as users type them: ``NAME``, ``[wait=True]``.
    sentence
        The first sentence of its docstring.
    about_arguments
        The texts about its arguments, by their names.
    remarks
        The other paragraphs, in order.
    commands
        The lines of its examples.
    undo
        What undoes it; None if the docstring has nothing of it.
    """

    name: str
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    sentence: str = ""
    about_arguments: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    undo: str | None = None


def read(source: str, file_name: str) -> Iterator[FunctionText]:
    """
    Yield the public functions of a Salt module's source.

    file_name
        The file's name without its ending, which is the module's name if the source has none.
    """
    tree = ast.parse(source)
    constants = dict(_assigned(tree, ast.Constant))
    module = constants.get("__virtualname__")
    module_name = module.value if isinstance(module, ast.Constant) else file_name
    names_by_alias = {
        alias: node.id for alias, node in _assigned(tree, ast.Name) if isinstance(node, ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            aliases = [alias for alias, name in names_by_alias.items() if name == node.name]
            yield _read_function(node, str(module_name), aliases)


def _assigned(tree: ast.Module, kind: type[ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, kind):
            yield from (
                (target.id, node.value) for target in node.targets if isinstance(target, ast.Name)
            )


def _read_function(node: ast.FunctionDef, module: str, aliases: Sequence[str]) -> FunctionText:
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "").replace("``", "'")
    about, _heading, examples = text.partition(_EXAMPLES)
    first, *paragraphs = [part for part in re.split(r"\n\n+", about.strip()) if part]
    match = _SENTENCE.match(first)
    sentence = match[1] if match else first
    rest = first[len(sentence) :].strip()
    remarks, arguments = [rest] if rest else [], dict[str, str]()
    for part in paragraphs:
        if _ARGUMENTS.match(part):
            arguments |= _read_arguments(part)
        else:
            remarks.append(_one_line(part))
    undo = _UNDO.search(" ".join(remarks))
    return FunctionText(
        name=f"{module}.{node.name.rstrip('_')}",
        aliases=tuple(f"{module}.{alias}" for alias in aliases if not alias.startswith("_")),
        words=tuple(_words(node.args)),
        sentence=_one_line(sentence),
        about_arguments=arguments,
        remarks=tuple(remarks),
        commands=tuple(_example_lines(examples)),
        undo=undo[1] if undo else None,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _read_arguments(text: str) -> dict[str, str]:
    """Return the arguments of a paragraph: each is a line, with its text indented below it."""
    out: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text):
        name, _line, words = block.partition("\n")
        out[name] = _one_line(words)
    return out


def _example_lines(text: str) -> list[str]:
    """Return the commands of a code block; one that goes on in the next line is one command."""
    code = text.partition(".. code-block:: bash")[2].replace("\\\n", " ")
    lines = textwrap.dedent(code).splitlines()
    return [_one_line(line) for line in lines if line.strip()]


def _words(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    required_count = len(positional) - len(given.defaults)
    for argument in positional[:required_count]:
        yield argument.arg.strip("_").upper()
    for argument, default in zip(positional[required_count:], given.defaults, strict=True):
        yield _optional(argument, default)
    if given.vararg is not None:
        yield f"[{given.vararg.arg.upper()} ...]"
    for argument, keyword_default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _optional(argument, keyword_default)
    if given.kwarg is not None:
        yield "[ARGUMENT=VALUE ...]"


def _optional(argument: ast.arg, default: ast.expr | None) -> str:
    """Return an optional argument with its default, or with its name for None."""
    value = ast.unparse(default).strip("'") if default is not None else "None"
    return f"[{argument.arg}={argument.arg.strip('_').upper() if value == 'None' else value}]"
