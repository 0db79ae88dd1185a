"""The ``virt:`` options of a minion and of a master, read once and checked."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from saltvirt.arguments import boolean, refuse_unknown
from saltvirt.errors import BadArgument, BadConfig
from saltvirt.model import DEFAULT_BRIDGE, Policy

log = logging.getLogger(__name__)

# Longer than any CA; what is far longer is not a date any more.
_MAX_DAYS = 36500
CONNECTION = ("connection", "username", "password")
DEFAULT_NIC = [{"name": "eth0", "type": "bridge", "source": DEFAULT_BRIDGE, "model": "virtio"}]
DEFAULT_DISK = [{"name": "system", "size": 8192}]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an option may be: ``read`` returns the value as it is used, or raises ValueError."""

    accepts: str
    read: Callable[..., Any]


def _kind(accepts: str, is_good: Callable[[Any], bool]) -> _Kind:
    def read(value: Any) -> Any:
        if not is_good(value):
            raise ValueError
        return value

    return _Kind(accepts, read)


def _number(of: Callable[[Any], float], accepts: str, least: int) -> _Kind:
    def read(value: Any) -> float:
        number = of(value)
        # 2.5 is not a whole number, and True is not a number.
        if isinstance(value, bool) or number != float(value) or not least <= number < math.inf:
            raise ValueError
        return number

    return _Kind(f"{accepts} of at least {least}", read)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _is_path(value: Any) -> bool:
    return _is_text(value) and value.startswith("/")


def _is_tags(value: object) -> bool:
    return isinstance(value, Mapping) and _is_texts([*value, *value.values()])


def _one_of(*names: str) -> _Kind:
    return _kind(" or ".join(names), lambda value: value in ("", *names))


def _refused() -> Any:
    raise ValueError


_TEXT = _kind("text", _is_text)
_TEXTS = _kind("text or a list of texts", lambda value: _is_text(value) or _is_texts(value))
_PATH = _kind("an absolute path", _is_path)
_PATHS = _kind(
    "a list of absolute paths", lambda value: _is_texts(value) and all(map(_is_path, value))
)
_FLAG = _kind("True or False", lambda value: isinstance(value, bool))
_MAPPING = _kind("a mapping", lambda value: isinstance(value, Mapping))
_CLOUD_CONFIG = _kind("a mapping or text", lambda value: isinstance(value, Mapping | str))
_COMPAT = _Kind("3006", lambda value: {"3006": "3006"}.get(str(value)) or _refused())
_PLACEMENTS = ("spread", "pack")
_COUNT, _AT_LEAST_1 = (_number(int, "a whole number", least) for least in (0, 1))
_RATIO = _number(float, "a number", 0)

# What may stand in each option. In a mapping with fixed keys a misspelt one would mean nothing.
_HOST = {
    "compat": _COMPAT,
    "connection": {"uri": _TEXT, "auth": {"username": _TEXT, "password": _TEXT}},
    "images": _PATH,
    "image_max_gib": _COUNT,
    "image_limit_s": _AT_LEAST_1,
    "storagepool": _TEXT,
    "hypervisor": _one_of("kvm", "qemu"),
    "nic": _MAPPING,
    "disk": _MAPPING,
    "cpu_ratio": _RATIO,
    "memory_ratio": _RATIO,
    "reserve_mib": _COUNT,
    "disk_ratio": _RATIO,
    "disk_reserve_mib": _COUNT,
    "capacity": {"vcpus": _COUNT, "memory_mib": _COUNT, "disk_mib": _COUNT},
    "vnc": {"listen": _TEXT, "password": _TEXT, "keymap": _TEXT},
    "console_log": _FLAG,
    "seed": {
        "master": _TEXTS,
        "config": _MAPPING,
        "method": _one_of("auto", "nocloud", "guestfs", "nbd", "credentials"),
        "python": _PATH,
        "limit_s": _AT_LEAST_1,
        "memory_mib": _AT_LEAST_1,
        "user_data": _CLOUD_CONFIG,
        "vendor_data": _CLOUD_CONFIG,
        "ssh_authorized_keys": _TEXTS,
        "install_from": _TEXTS,
        "install_network": _FLAG,
        "bootstrap": _TEXT,
        "allow_host_mount": _FLAG,
    },
    "state_dir": _PATH,
    "shared_paths": _PATHS,
    "backing_paths": _PATHS,
    "tunnel": _FLAG,
    "trash_days": _COUNT,
    "tags": _kind("a mapping of names to texts", _is_tags),
}
_ANY = _Kind("anything", lambda value: value)
_MASTER = {
    "hypervisors": _TEXTS,
    "timeout_s": _COUNT,
    "deploy_timeout_s": _COUNT,
    "wait_s": _COUNT,
    "placement": _one_of(*_PLACEMENTS),
    "spread_over": _TEXT,
    "headroom": _FLAG,
    "sample_hosts": _COUNT,
    "init_per_host": _AT_LEAST_1,
    "init_parallel": _AT_LEAST_1,
    "cells": _MAPPING,
    "cell_prefix": _TEXT,
    "weights": {"memory": _RATIO, "cpu": _RATIO, "disk": _RATIO},
    "minion_packages": {"source": _TEXT},
    # See pki_options: what is in it concerns the CA alone.
    "pki": dict.fromkeys(
        ("allow", "days", "key_type", "organization", "names", "requests_per_hour"), _ANY
    ),
}


class _Options:
    """
    Options, each checked: one that cannot be used is its own error, raised where it is asked for.

    What does not need it goes on: a slip in one option must not stop every function.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if isinstance(value, BadConfig):
            raise value
        return value


def wrong(settings: _Options) -> list[str]:
    """Return why options cannot be used, sorted."""
    out = set()
    for one in fields(settings):  # type: ignore[arg-type]
        try:
            getattr(settings, one.name)
        except BadConfig as exc:
            out.add(str(exc))
    return sorted(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(_Options):
    """
    Options of a hypervisor (minion configuration, grains or pillar, below ``virt:``).

    uri
        None is libvirt's own choice.
    """

    compat: str | None = None
    uri: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    images: str = "/srv/salt-images"
    image_max_gib: int = 2048
    image_limit_s: int = 3600
    storagepool: str | None = None
    hypervisor: str | None = None
    nic: dict[str, Any] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict)
    cpu_ratio: float = 4.0
    memory_ratio: float = 1.0
    reserve_mib: int = 512
    disk_ratio: float = 1.0
    disk_reserve_mib: int = 1024
    capacity: dict[str, Any] = field(default_factory=dict)
    vnc: dict[str, Any] = field(default_factory=dict)
    console_log: bool = True
    seed: dict[str, Any] = field(default_factory=dict)
    state_dir: str = "/var/lib/salt-virt"
    shared_paths: list[Any] = field(default_factory=list)
    backing_paths: list[Any] = field(default_factory=list)
    tunnel: bool = False
    trash_days: int = 0
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def disk_pool(self) -> str | None:
        """The pool of disks that name none; Salt 3006 had no such default for KVM."""
        return None if self.compat else self.storagepool


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings(_Options):
    """Options of the runner (master configuration, below ``virt:``)."""

    hypervisors: str | Sequence[str] = ()
    timeout_s: int = 10
    deploy_timeout_s: int = 1800
    # Defaults to what a VM's host needs, see saltvirt.fleet.awaiting.
    wait_s: int | None = None
    placement: str = "spread"
    spread_over: str | None = None
    headroom: bool = False
    sample_hosts: int = 100
    init_per_host: int = 2
    init_parallel: int = 16
    cells: dict[str, Any] = field(default_factory=dict)
    cell_prefix: str | None = None
    weights: dict[str, Any] = field(default_factory=dict)
    minion_packages: dict[str, Any] = field(default_factory=dict)
    pki: dict[str, Any] = field(default_factory=dict)


def option(sources: Iterable[Mapping[str, Any]], name: str) -> Any:
    """Return the first of ``virt:name`` and ``virt.name`` that a source has, else None."""
    for source in sources:
        nested = source.get("virt")
        if nested is not None and not isinstance(nested, Mapping):
            raise BadConfig(f"option virt: expected a mapping, found {nested!r}")
        if nested and nested.get(name) is not None:
            return nested[name]
        if source.get(f"virt.{name}") is not None:
            return source[f"virt.{name}"]
    return None


def _read(name: str, kind: _Kind | Mapping[str, Any], value: Any) -> Any:
    """Return the value of an option as it is used, or raise BadConfig."""
    # Neither log nor job cache is to know it; among keys there may be a private one by mistake.
    is_secret = name.endswith(("password", "authorized_keys"))
    found = "something else" if is_secret else repr(value)
    if isinstance(kind, _Kind):
        try:
            return kind.read(value)
        except (TypeError, ValueError, OverflowError):
            raise BadConfig(f"option virt:{name}: expected {kind.accepts}, found {found}") from None
    known = ", ".join(sorted(kind))
    if not isinstance(value, Mapping):
        raise BadConfig(f"option virt:{name}: expected a mapping with {known}, found {found}")
    unknown = sorted(map(str, set(value) - set(kind)))
    if unknown:
        raise BadConfig(f"option virt:{name}: unknown key {unknown[0]!r}; known: {known}")
    return {
        key: _read(f"{name}:{key}", kind[key], one)
        for key, one in value.items()
        if one is not None or kind[key] is _ANY
    }


def _options(kinds: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that are given; one that cannot be used as its error."""
    found = {name: option(sources, name) for name in kinds}
    return {name: _or_error(name, kinds[name], v) for name, v in found.items() if v is not None}


def _or_error(name: str, kind: _Kind | Mapping[str, Any], value: Any) -> Any:
    try:
        return _read(name, kind, value)
    except BadConfig as exc:
        log.warning("%s; what needs it is refused", exc)
        return exc


def pki_options(settings: MasterSettings) -> dict[str, Any]:
    """
    Return ``virt:pki``, checked, as the CA takes it; what is empty is left out, for the default.

    Only what makes the CA sign asks for it: a slip there must not stop the other runners.
    """
    given = {k: one for k, one in settings.pki.items() if one not in (None, "", [], (), {})}
    kinds = {
        "organization": _TEXT,
        "names": _kind("a mapping of hosts to lists", lambda value: isinstance(value, Mapping)),
        "days": _AT_LEAST_1,
        "requests_per_hour": _AT_LEAST_1,
    }
    for name in kinds.keys() & given.keys():
        given[name] = _read(f"pki:{name}", kinds[name], given[name])
    if "days" in given:
        given["days"] = min(given["days"], _MAX_DAYS)
    if "names" in given:
        given["names"] = {host: _listed(host, names) for host, names in given["names"].items()}
    return given


def _listed(host: str, names: object) -> list[str]:
    out = [names] if isinstance(names, str) and names else names or []
    if not isinstance(out, list | tuple) or not all(isinstance(name, str) for name in out):
        raise BadConfig(
            f"option virt:pki:names: {host}: expected a list of names and "
            f"addresses, found {names!r}"
        )
    return list(out)


def connection(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``connection``, ``username`` and ``password`` of a call; refuse the rest."""
    refuse_unknown([key for key in given if key not in CONNECTION], CONNECTION, function)
    return {key: given[key] for key in CONNECTION if key in given}


def for_call(
    function: str,
    given: Mapping[str, Any],
    opts: Mapping[str, Any],
    pillar: Mapping[str, Any],
    grains: Mapping[str, Any],
) -> HostSettings:
    """Return the options of this hypervisor for a call with only connection keywords left."""
    return host_settings(opts, pillar, grains, **connection(function, given))


def host_settings(
    opts: Mapping[str, Any],
    pillar: Mapping[str, Any] | None = None,
    grains: Mapping[str, Any] | None = None,
    **override: Any,
) -> HostSettings:
    """
    Return the options of this hypervisor.

    Minion configuration wins over grains, grains over pillar, as with Salt's own
    ``config.get``; ``override`` (``connection``, ``username``, ``password``) wins over all.
    """
    sources = [opts, *(source for source in (grains, pillar) if source)]
    values = _options(_HOST, sources)
    own = _connection(values.pop("connection", {}))
    own |= {name: override.get(name) or own.get(name) for name in ("username", "password")}
    own["uri"] = override.get("connection") or own["uri"]
    return HostSettings(**values, **{name: value for name, value in own.items() if value})


def _connection(option: Any) -> dict[str, Any]:
    """Return ``{uri, username, password}`` of the option, or of what is wrong with it."""
    if isinstance(option, BadConfig):
        return dict.fromkeys(("uri", "username", "password"), option)
    return {"uri": option.get("uri"), **option.get("auth", {})}


def master_settings(opts: Mapping[str, Any]) -> MasterSettings:
    """Return the options of the runner."""
    values = _options(_MASTER, [opts])
    settings = MasterSettings(**values)
    pki = values.get("pki")
    if isinstance(pki, Mapping) and "allow" in pki:
        raise BadConfig(
            "option virt:pki:allow: who gets certificates is said by virt:hypervisors and "
            "virt.allow now; take it out of the master's configuration, list its ids in "
            "virt:hypervisors, or run: salt-run virt.allow HOST"
        )
    return settings


def policy(settings: MasterSettings, given: Mapping[str, Any]) -> Policy:
    """
    Return the :class:`saltvirt.model.Policy` that a call means.

    settings
        The master's, which say what holds where the call says nothing.
    given
        ``placement``, ``spread_over`` and ``headroom``; what is None is not given.
    """
    values = {name: value for name, value in given.items() if value is not None}
    placement = values.get("placement", settings.placement or "spread")
    if placement not in _PLACEMENTS:
        raise BadArgument("placement", f"{placement!r}; one of {', '.join(_PLACEMENTS)}")
    over = values.get("spread_over", settings.spread_over)
    if not isinstance(over, str | None):
        raise BadArgument("spread_over", f"{over!r} is not the name of a tag, such as rack")
    headroom = boolean("headroom", values.get("headroom", settings.headroom))
    return Policy(placement=placement, spread_over=over or None, headroom=headroom)
