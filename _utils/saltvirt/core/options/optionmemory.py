"""
The ``virt:`` options that a hypervisor remembers from its last good configuration and pillar.

A pillar that cannot be rendered reaches the minion in part, with ``_errors``; ``salt-call --local``
has no pillar; an included file that cannot be parsed is skipped. A missing option then does not
mean its default. Each host keeps the options of each source in one file, at a path that depends on
none of them.
"""

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.core import files, terminal
from saltvirt.core.errors import BadConfig
from saltvirt.core.options import optionsources, optionstrength, saltfiles

Section = dict[str, Any]


def read_section(names: Collection[str], source: Mapping[str, Any]) -> Section | None:
    """Return the options of a source to remember; None if it has no ``virt:`` at all."""
    if "virt" not in source and not any(str(key).startswith("virt.") for key in source):
        return None
    source_pairs = [optionsources.split_source(source)]
    values = {name: optionsources.first_value(source_pairs, name) for name in names}
    kept_values = {
        name: _without_secrets(name, value) for name, value in values.items() if value is not None
    }
    return {name: value for name, value in sorted(kept_values.items()) if value is not None}


def _without_secrets(name: str, value: Any) -> Any:
    """Return an option's value to remember, without secrets."""
    if name == "connection":
        value = {"uri": value["uri"]} if isinstance(value, Mapping) and value.get("uri") else None
    if name == "vnc":
        if not isinstance(value, Mapping):
            return None
        has_password = value.get("password") is not None
        value = {**{key: item for key, item in value.items() if key != "password"}}
        value |= {"password": True} if has_password else {}
    # In the form in which the file is read again.
    return json.loads(json.dumps(value, default=str))


def restore_section(section: Section, source_options: Mapping[str, Any]) -> Section:
    """
    Return remembered options with the secrets that a source still has.

    source_options
        The options that the source has below ``virt:`` now.
    """
    out = dict(section)
    auth, password = (
        _nested_value(source_options, "connection", "auth"),
        _nested_value(source_options, "vnc", "password"),
    )
    if auth and "connection" in section:
        out["connection"] = {**section["connection"], "auth": auth}
    if section.get("vnc", {}).get("password"):
        missing = BadConfig("option virt:vnc: its password is not remembered, and is missing now")
        out["vnc"] = {**section["vnc"], "password": password} if password else missing
    return out


def _nested_value(source_options: Mapping[str, Any], name: str, key: str) -> Any:
    option = source_options.get(name)
    return option.get(key) if isinstance(option, Mapping) else None


def replace_section(
    names: Collection[str], source: Mapping[str, Any], section: Section
) -> Mapping[str, Any]:
    """Return a source with the remembered options in place of its own."""
    _all, nested = optionsources.split_source(source)
    dotted = {key: item for key, item in source.items() if str(key).startswith("virt.")}
    return {
        **{key: item for key, item in dotted.items() if str(key)[5:] not in names},
        "virt": {
            **{key: item for key, item in nested.items() if key not in names},
            **restore_section(section, nested),
        },
    }


log = logging.getLogger(__name__)

VERSION = 1
FOLDER = "var/lib/salt-virt-options"
# In the order of precedence.
SOURCES = ("config", "grains", "pillar")
# Options that are not remembered, with the reason. All others are.
NOT_REMEMBERED = {
    "seed": "guests get it, no protection of the host depends on it, and it has secrets",
    "disk": "it says what a new VM gets, and the URL of an image may have a password",
}
# If one of these is no longer set, the next call that changes something logs that.
_LASTING = (*optionstrength.LEAST, *optionstrength.PLACES, "shared_paths")

# Keys that Salt itself adds to a pillar.
_OF_SALT = {"schedule", "master"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOption:
    """A protective option that is not set any more; ``until`` is in UTC."""

    option: str
    was: Any
    until: str

    def __str__(self) -> str:
        shown_value = optionstrength.printable_value(self.option, self.was)
        return f"virt:{self.option} was {shown_value} until {self.until}, and is not set any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """
    The content of the file.

    sections
        The options of each source; None for a source that never had ``virt:``.
    lost
        Dropped options that no changing call has logged yet.
    """

    sections: dict[str, Section | None] = field(default_factory=dict)
    lost: tuple[LostOption, ...] = ()


@dataclass(frozen=True, slots=True)
class _Problem:
    """The reason why the file cannot be read, and whether a newer release wrote it."""

    text: str
    is_newer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsInForce:
    """
    The sources of options in force for one call.

    sources
        The minion's configuration, grains and pillar, or their replacements; the first that has an
        option wins.
    refusal
        Why the host refuses changes now, or None.
    is_remembered
        Whether all options are as they were when the sources were complete, so that work that was
        begun then may be finished.
    notices
        Messages for the operator about options that are in force though missing, or were dropped.
    """

    sources: Sequence[Mapping[str, Any]]
    refusal: str | None = None
    is_remembered: bool = False
    notices: tuple[str, ...] = ()


def options_in_force(
    names: Collection[str],
    opts: Mapping[str, Any],
    grains: Mapping[str, Any] | None,
    pillar: Mapping[str, Any] | None,
    *,
    is_change: bool,
) -> OptionsInForce:
    """
    Return the options in force for a call; remember them if their sources are complete.

    names
        The options of a hypervisor.
    is_change
        Whether the call changes something, and logs the notices.
    pillar
        None outside a minion, such as in salt-cloud: the options that this machine's minion
        remembers come after the given ones, and nothing is remembered.
    """
    sources_by_name = {
        "config": _unwrap(opts),
        "grains": _unwrap(grains),
        "pillar": _unwrap(pillar),
    }
    sources = [source for name, source in sources_by_name.items() if name == "config" or source]
    refusal = _pillar_errors(sources_by_name["config"], sources_by_name["pillar"])
    path = _path(sources_by_name["config"])
    if path is None:
        return OptionsInForce(sources=sources, refusal=refusal)
    if pillar is None:
        return OptionsInForce(sources=[*sources, *_read_only_minion(path.parent)])
    session = _OptionSession(frozenset(names) - set(NOT_REMEMBERED), sources_by_name, path, refusal)
    return session.standing(is_change=is_change)


def _unwrap(source: Any) -> Mapping[str, Any]:
    """Return a source without the wrapper that Salt's loader gives to modules."""
    options: Mapping[str, Any] | None = source.value() if hasattr(source, "value") else source
    # Salt 3008 counts all options to see that there are any.
    return {} if options is None else options


def _path(opts: Mapping[str, Any]) -> Path | None:
    """Return the path of the file; None for options of no minion."""
    if not opts.get("id") or not opts.get("root_dir"):
        return None
    return Path(opts["root_dir"]) / FOLDER / f"{files.to_file_name(str(opts['id']))}.json"


def _read_only_minion(folder: Path) -> list[Section]:
    """Return the options that this machine's only minion remembers; nothing of several minions."""
    paths = sorted(folder.glob("*.json"))
    sections = _read(paths[0])[0].sections if len(paths) == 1 else {}
    return [
        {"virt": restore_section(section, {})}
        for name in SOURCES
        if (section := sections.get(name))
    ]


def _pillar_errors(opts: Mapping[str, Any], pillar: Mapping[str, Any]) -> str | None:
    errors = pillar.get("_errors")
    if not errors:
        return None
    first = errors[0] if isinstance(errors, list | tuple) else errors
    return (
        f"nothing is changed on this host while its pillar has errors "
        f"({terminal.one_line(str(first), 160)}); fix the pillar, then run: salt "
        f"{opts.get('id', 'HOST')} saltutil.refresh_pillar"
    )


class _OptionSession:
    """One comparison of a minion's sources with its remembered options."""

    def __init__(
        self,
        names: frozenset[str],
        sources_by_name: Mapping[str, Mapping[str, Any]],
        path: Path,
        refusal: str | None,
    ) -> None:
        self._names, self._plain, self._path, self._refusal = names, sources_by_name, path, refusal
        self._memory, self._problem = _read(path)
        self._now = {name: read_section(names, sources_by_name[name]) for name in SOURCES}
        self._next: dict[str, Section | None] = {}
        self._sources: list[Mapping[str, Any]] = []
        self._notices: list[str] = []
        self._is_complete = self._is_remembered = True

    def standing(self, *, is_change: bool) -> OptionsInForce:
        """Return the sources in force, and remember their options."""
        for name in SOURCES:
            self._judge(name)
        kept_options = self._beside_the_pillar()
        memory = self._changed()
        if is_change and self._refusal is None:
            self._notices += map(str, memory.lost)
            memory = replace(memory, lost=())
        if memory != self._memory and (self._problem is None or self._may_replace()):
            _write(self._path, memory, logging.WARNING if is_change else logging.DEBUG)
        return OptionsInForce(
            sources=[
                *self._sources,
                *([{"virt": restore_section(kept_options, {})}] if kept_options else []),
            ],
            refusal=self._refusal,
            is_remembered=self._is_remembered,
            notices=tuple(self._notices),
        )

    def _may_replace(self) -> bool:
        """Return whether an unreadable file may be replaced."""
        return self._problem is not None and not self._problem.is_newer and self._is_complete

    def _judge(self, name: str) -> None:
        """Use a source as it is, or its remembered options if it is incomplete."""
        source, remembered_section = self._plain[name], self._memory.sections.get(name)
        reason = self._incomplete(name)
        if reason is None:
            self._next[name] = self._now[name]
        elif name in self._memory.sections:
            self._next[name] = remembered_section
        self._is_complete &= reason is None
        self._is_remembered &= reason is None or name in self._memory.sections
        if reason and remembered_section:
            self._notices.append(
                f"{reason}; these hold as they were before: {_option_names(remembered_section)}"
            )
        if reason and remembered_section is not None:
            self._sources.append(replace_section(self._names, source, remembered_section))
        elif name == "config" or source:
            self._sources.append(source)

    def _incomplete(self, name: str) -> str | None:
        """Return why a source may lack options; None if it is complete."""
        if name == "pillar":
            reason = self._pillar_is_not_the_hosts()
        elif name in self._memory.sections and self._now[name] == self._memory.sections[name]:
            return None
        else:
            readers = {"config": saltfiles.unreadable_config, "grains": saltfiles.unreadable_grains}
            reason = readers[name](self._plain["config"])
            self._refuse(reason)
        if reason and self._problem:
            self._refuse(self._problem.text)
        return reason

    def _refuse(self, reason: str | None) -> None:
        if reason and not self._refusal:
            self._refusal = f"nothing is changed on this host: {reason}"

    def _pillar_is_not_the_hosts(self) -> str | None:
        opts = self._plain["config"]
        if self._plain["pillar"].get("_errors"):
            return "the pillar has errors"
        if opts.get("file_client") != "local" or opts.get("use_master_when_local"):
            return None
        if saltfiles.read_option(opts, "file_client") == "local":
            return None
        return "this call has no pillar of the master (--local)"

    def _beside_the_pillar(self) -> Section:
        """Return remembered options that stay in force though an intact pillar lacks them."""
        remembered_section = self._memory.sections.get("pillar")
        if (
            not remembered_section
            or self._now["pillar"] == remembered_section
            or self._plain["pillar"].get("_errors")
        ):
            return {}
        if self._is_of_another_environment():
            self._next["pillar"] = remembered_section
            kept_options = self._not_in(remembered_section, "pillar")
            reason = "this call has the pillar of another environment (pillarenv)"
        elif self._next.get("pillar") is None and not set(self._plain["pillar"]) - _OF_SALT:
            # The top file is gone, or no longer names the host. Forget options that another source
            # has now.
            kept_options = self._not_in(remembered_section, "config", "grains")
            self._next["pillar"] = kept_options or None
            reason = "the pillar of this host is empty (to drop options, write there: virt: {})"
        else:
            return {}
        if kept_options:
            self._notices.append(
                f"{reason}; these hold as they were before: {_option_names(kept_options)}"
            )
        return kept_options

    def _not_in(self, section: Section, *sources: str) -> Section:
        """Return the options of a section that these sources lack now."""
        now = [self._now[name] for name in sources]
        return {name: value for name, value in section.items() if not _has(now, name)}

    def _is_of_another_environment(self) -> bool:
        opts = self._plain["config"]
        environment = opts.get("pillarenv")
        return bool(environment and environment != saltfiles.read_option(opts, "pillarenv"))

    def _changed(self) -> Memory:
        """Return the new memory, and log each protection that has become weaker."""
        lost_options = [
            lost_option
            for lost_option in self._memory.lost
            if not _has(self._next.values(), lost_option.option)
        ]
        for option in sorted(self._names):
            old_value, new_value = (
                _first_value(self._memory.sections, option),
                _first_value(self._next, option),
            )
            if (
                old_value == new_value
                or not self._memory.sections
                or not optionstrength.is_weaker(option, old_value, new_value)
            ):
                continue
            log.warning(
                "virt:%s protects less than before: %s",
                option,
                optionstrength.describe_change(option, old_value, new_value),
            )
            if new_value is None and option in _LASTING:
                lost_at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                lost_options.append(LostOption(option=option, was=old_value, until=lost_at))
        return Memory(sections=self._next, lost=tuple(lost_options))


def _option_names(section: Section) -> str:
    return ", ".join(f"virt:{option}" for option in section)


def _has(sections: Any, option: str) -> bool:
    return any(section and option in section for section in sections)


def _first_value(sections: Mapping[str, Section | None], option: str) -> Any:
    """Return an option's value in the first section that has it."""
    return next(
        (
            section[option]
            for name in SOURCES
            if (section := sections.get(name)) and option in section
        ),
        None,
    )


def _read(path: Path) -> tuple[Memory, _Problem | None]:
    """Return the remembered options, and the reason if they cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["version"]
        if version != VERSION:
            text = (
                f"{path} is of version {version}, and Salt Virt here knows version {VERSION}; "
                "update it here: saltutil.sync_all"
            )
            return Memory(), _Problem(text, is_newer=True)
        sections = {name: content["sections"][name] for name in content["sections"]}
        lost_options = tuple(LostOption(**row) for row in content["lost"])
        if not all(section is None or isinstance(section, dict) for section in sections.values()):
            raise ValueError("a section is no mapping")
    except FileNotFoundError:
        return Memory(), None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        reason = terminal.one_line(f"{type(exc).__name__}: {exc}", 120)
        text = f"{path} cannot be read ({reason}); the next call with a good pillar writes it anew"
        return Memory(), _Problem(text, is_newer=False)
    return Memory(sections=sections, lost=lost_options), None


def _write(path: Path, memory: Memory, level: int) -> None:
    content = {
        "version": VERSION,
        "sections": memory.sections,
        "lost": [{"option": o.option, "was": o.was, "until": o.until} for o in memory.lost],
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(path, json.dumps(content).encode())
        files.sync_folder(path.parent.parent)
    except OSError as exc:
        # Do not raise: calls that make room must work on a full disk, too.
        log.log(level, "the virt: options of this host are not remembered in %s: %s", path, exc)
