"""What Salt does for each call anew, and always alike, done once: it takes longer than a test."""

import functools
import os

import jinja2
from salt.loader.lazy import LazyLoader
from salt.utils import entrypoints
from saltvirt.core import filecontent

_list_files = LazyLoader._refresh_file_mapping
_listed = {}
_compile = jinja2.Environment.compile
_compiled = {}


def _of_its_folders(loader):
    """Stand for a loader's own method: of the same folders it finds the same files."""
    folders = tuple(filter(os.path.isdir, loader.module_dirs))
    key = folders, tuple(loader.static_modules), frozenset(loader.disabled)
    if key not in _listed:
        _list_files(loader)
        _listed[key] = loader.suffix_map, loader.suffix_order, loader.file_mapping
    kept = _listed[key]
    loader.suffix_map, loader.suffix_order, loader.file_mapping = (one.copy() for one in kept)


def _of_its_text(env, source, *args, **kwargs):
    """Stand for an environment's own method: the same template is the same code."""
    key = type(env), env.trim_blocks, env.lstrip_blocks, source, args, *kwargs.items()
    if key not in _compiled:
        _compiled[key] = _compile(env, source, *args, **kwargs)
    return _compiled[key]


def folders_are_listed():
    """Have Salt's loaders, a dozen for a call, list the folders of its modules once."""
    LazyLoader._refresh_file_mapping = _of_its_folders
    entrypoints.iter_entry_points = functools.cache(entrypoints.iter_entry_points)


def options_are_there():
    """Have Salt 3008 not count all options, a dozen times for a call, to see that there are any."""
    try:
        from salt.utils.optsdict import OptsDict
    except ImportError:
        return
    OptsDict.__bool__ = lambda _opts: True


def code_is_read():
    """Have the library's own files, which no test changes, read once for their digest."""
    of_code, own = filecontent.of_code, functools.cache(filecontent.of_code)
    filecontent.of_code = lambda folder=None: of_code(folder) if folder else own()


def templates_are_compiled(monkeypatch):
    """Have each template compiled once, as long as ``monkeypatch`` lasts."""
    monkeypatch.setattr(jinja2.Environment, "compile", _of_its_text)
