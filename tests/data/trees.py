"""The syntax trees of this checkout's files, each parsed once."""

import ast
import functools


@functools.cache
def tree(path):
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def nodes(path):
    """Return all nodes of a file's syntax tree."""
    return list(ast.walk(tree(path)))


def offenders(paths, found, root):
    """Return ``{file: what is wrong in it}``: what ``found`` yields of a file, if that is any."""
    told = {str(path.relative_to(root)): list(found(path)) for path in paths}
    return {name: wrong for name, wrong in told.items() if wrong}
