"""
Files from which Salt reads a minion's or a master's options and a minion's grains.

salt-call, salt-run and salt-master skip an included file that they cannot parse, and every minion
skips a broken grains file: they only log that, and the file's options are missing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import salt.utils.yaml

from saltvirt.core import terminal


def unreadable_config(opts: Mapping[str, Any]) -> str | None:
    """Return the first configuration file that cannot be parsed, and why; None if all can be."""
    return next((content for _path, content in _config(opts) if isinstance(content, str)), None)


def config_paths(opts: Mapping[str, Any]) -> list[Path]:
    """Return the configuration files, those that others include after the main one."""
    return [path for path, _content in _config(opts)]


def read_option(opts: Mapping[str, Any], name: str) -> Any:
    """Return an option as the configuration files set it; ignore the command line."""
    contents = [content for _path, content in _config(opts) if isinstance(content, Mapping)]
    return next((content[name] for content in reversed(contents) if name in content), None)


def unreadable_grains(opts: Mapping[str, Any]) -> str | None:
    """Return why the file of static grains cannot be parsed; None if it can be."""
    conf_file = opts.get("conf_file")
    if not conf_file:
        return None
    content = _parse(Path(conf_file).parent / "grains")
    return content if isinstance(content, str) else None


def named_options(opts: Mapping[str, Any]) -> set[str]:
    """Return the names of all options below ``virt:`` in the configuration files that parse."""
    contents = [content for _path, content in _config(opts) if isinstance(content, Mapping)]
    return {name for content in contents for name in names_below_virt(content)}


def names_below_virt(source: Mapping[str, Any]) -> set[str]:
    """Return the names of the options that a source has below ``virt:``."""
    nested = source.get("virt")
    dotted = {str(key)[5:] for key in source if str(key).startswith("virt.")}
    return dotted | (set(map(str, nested)) if isinstance(nested, Mapping) else set())


def _config(opts: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield each configuration file with its mapping, or with the reason that it has none."""
    conf_file = opts.get("conf_file")
    if not conf_file:
        return
    main = Path(conf_file)
    yield main, _parse(main)
    for option in ("default_include", "include"):
        yield from _included(main, opts.get(option), frozenset((main,)))


def _included(
    main: Path, patterns: Any, read_paths: frozenset[Path]
) -> Iterator[tuple[Path, Mapping[str, Any] | str]]:
    globs = [patterns] if isinstance(patterns, str) else patterns or []
    for pattern in filter(None, map(str, globs)):
        full_pattern = Path(pattern).expanduser()
        full_pattern = full_pattern if full_pattern.is_absolute() else main.parent / full_pattern
        for path in sorted(Path("/").glob(str(full_pattern).lstrip("/"))):
            if path in read_paths:
                continue
            content = _parse(path)
            yield path, content
            if isinstance(content, Mapping):
                yield from _included(path, content.get("include"), read_paths | {path})


def _parse(path: Path) -> Mapping[str, Any] | str:
    """Return the content of a file of Salt's, or the reason why it cannot be parsed."""
    try:
        content = salt.utils.yaml.safe_load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        # Salt read it as the user that began the command, possibly not the current one.
        return {}
    except (OSError, ValueError, salt.utils.yaml.YAMLError) as exc:
        return (
            f"{path} cannot be read ({_parse_error(exc)}), and may have virt: options; fix the file"
        )
    if content is None or isinstance(content, Mapping):
        return content or {}
    return f"{path} is no mapping, and Salt skips it; fix the file"


def _parse_error(exc: Exception) -> str:
    """Return an error of a file without the file's content, which may have passwords."""
    mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
    if mark is not None and problem:
        return terminal.one_line(f"line {mark.line + 1}: {problem}")
    return getattr(exc, "strerror", None) or type(exc).__name__
