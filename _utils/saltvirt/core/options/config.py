"""The ``virt:`` options of a minion and of a master, read once and checked."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from saltvirt.core import arguments, seedmethods
from saltvirt.core.arguments import boolean, refuse_unknown
from saltvirt.core.errors import BadArgument, BadConfig
from saltvirt.core.model import DEFAULT_BRIDGE, Policy
from saltvirt.core.options import optionmemory, optionsources
from saltvirt.core.options.optionkinds import (
    ANY,
    AT_LEAST_1,
    CLOUD_CONFIG,
    COMPAT,
    COUNT,
    FLAG,
    MAPPING,
    PATH,
    PATHS,
    RATIO,
    TEXT,
    TEXTS,
    Kind,
    is_tags,
    kind,
    one_of,
)

log = logging.getLogger(__name__)

# Longer than the life of any CA; a far larger number exceeds the last date.
_MAX_DAYS = 36500
CONNECTION = ("connection", "username", "password")
DEFAULT_NIC = [{"name": "eth0", "type": "bridge", "source": DEFAULT_BRIDGE, "model": "virtio"}]
DEFAULT_DISK = [{"name": "system", "size": 8192}]


_PLACEMENTS = ("spread", "pack")
# Options with secrets, some in mappings: a list of public keys may have a private one in it.
_SECRET = {
    *("password", "auth", "connection", "vnc", "seed", "config", "user_data", "vendor_data"),
    *("ssh_authorized_keys", "install_from", "bootstrap"),
}
# The accepted values of each option. Unknown keys of a mapping are refused: they have no effect.
_HOST = {
    "compat": COMPAT,
    "connection": {"uri": TEXT, "auth": {"username": TEXT, "password": TEXT}},
    "connections": TEXTS,
    "images": PATH,
    "image_max_gib": COUNT,
    "image_limit_s": AT_LEAST_1,
    "storagepool": TEXT,
    "hypervisor": one_of("kvm", "qemu"),
    "nic": MAPPING,
    "disk": MAPPING,
    "cpu_ratio": RATIO,
    "memory_ratio": RATIO,
    "reserve_mib": COUNT,
    "disk_ratio": RATIO,
    "pool_ratio": RATIO,
    "disk_reserve_mib": COUNT,
    "capacity": {"vcpus": COUNT, "memory_mib": COUNT, "disk_mib": COUNT},
    "vnc": {"listen": TEXT, "password": TEXT, "keymap": TEXT},
    "console_log": FLAG,
    "seed": {
        "master": TEXTS,
        "config": MAPPING,
        "method": one_of(*seedmethods.NAMES),
        "python": PATH,
        "limit_s": AT_LEAST_1,
        "memory_mib": AT_LEAST_1,
        "user_data": CLOUD_CONFIG,
        "vendor_data": CLOUD_CONFIG,
        "ssh_authorized_keys": TEXTS,
        "install_from": TEXTS,
        "install_network": FLAG,
        "bootstrap": TEXT,
        "allow_host_mount": FLAG,
    },
    "state_dir": PATH,
    "shared_paths": PATHS,
    "own_paths": PATHS,
    "backing_paths": PATHS,
    "tunnel": FLAG,
    "trash_days": COUNT,
    "tags": kind("a mapping of names to texts", is_tags),
}
_CONNECTING = {name: _HOST[name] for name in ("connection", "connections")}
_MASTER = {
    "hypervisors": TEXTS,
    "timeout_s": COUNT,
    "deploy_timeout_s": COUNT,
    "wait_s": COUNT,
    "placement": one_of(*_PLACEMENTS),
    "spread_over": TEXT,
    "headroom": FLAG,
    "machine": TEXT,
    "sample_hosts": COUNT,
    "init_per_host": AT_LEAST_1,
    "init_parallel": AT_LEAST_1,
    "cells": MAPPING,
    "cell_prefix": TEXT,
    "weights": {"memory": RATIO, "cpu": RATIO, "disk": RATIO},
    "minion_packages": {"source": TEXT},
    # See pki_options: its values concern the CA alone.
    "pki": dict.fromkeys(
        (
            *("allow", "days", "key_type", "organization", "names"),
            *("requests_per_hour", "requests_per_day"),
        ),
        ANY,
    ),
}


class _Options:
    """
    Checked options: an unusable one holds its error, which is raised on access.

    Functions that do not use that option still work.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if isinstance(value, BadConfig):
            raise value
        return value


def find_misspelt(*sources: Mapping[str, Any] | None) -> dict[str, str]:
    """Return names below ``virt:`` that have no effect, each with the option that may be meant."""
    option_names = {*_HOST, *_MASTER}
    return optionsources.find_misspelt([source for source in sources if source], option_names)


def find_errors(settings: _Options) -> list[str]:
    """Return the reasons why options cannot be used, sorted."""
    out = set()
    for option in fields(settings):  # type: ignore[arg-type]
        try:
            getattr(settings, option.name)
        except BadConfig as exc:
            out.add(str(exc))
    return sorted(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(_Options):
    """
    Options of a hypervisor (minion configuration, grains or pillar, below ``virt:``).

    uri
        None means libvirt's own choice.
    is_trash_set
        Whether ``virt:trash_days`` is set, and is no default.
    """

    compat: str | None = None
    uri: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    connections: str | Sequence[str] = ()
    images: str = "/srv/salt-images"
    image_max_gib: int = 2048
    image_limit_s: int = 3600
    storagepool: str | None = None
    hypervisor: str | None = None
    nic: dict[str, Any] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict, repr=False)
    cpu_ratio: float = 4.0
    memory_ratio: float = 1.0
    reserve_mib: int = 512
    disk_ratio: float = 1.0
    pool_ratio: float = 1.0
    disk_reserve_mib: int = 1024
    capacity: dict[str, Any] = field(default_factory=dict)
    vnc: dict[str, Any] = field(default_factory=dict, repr=False)
    console_log: bool = True
    seed: dict[str, Any] = field(default_factory=dict, repr=False)
    state_dir: str = "/var/lib/salt-virt"
    shared_paths: list[Any] = field(default_factory=list)
    own_paths: list[Any] = field(default_factory=list)
    backing_paths: list[Any] = field(default_factory=list)
    tunnel: bool = False
    trash_days: int = 7
    is_trash_set: bool = False
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
    # Defaults to the time that a VM's host needs, see saltvirt.vm.create.master.minionwait.
    wait_s: int | None = None
    placement: str = "spread"
    spread_over: str | None = None
    headroom: bool = False
    # Defaults to the newest that all hosts have, see saltvirt.placement.generation.
    machine: str | None = None
    sample_hosts: int = 100
    init_per_host: int = 2
    init_parallel: int = 16
    cells: dict[str, Any] = field(default_factory=dict)
    cell_prefix: str | None = None
    weights: dict[str, Any] = field(default_factory=dict)
    minion_packages: dict[str, Any] = field(default_factory=dict)
    pki: dict[str, Any] = field(default_factory=dict)


def _read(name: str, kind: Kind | Mapping[str, Any], value: Any) -> Any:
    """Return the checked value of an option, or raise BadConfig."""
    shown_value = "something else" if _may_be_secret(name, value) else repr(value)
    if isinstance(kind, Kind):
        try:
            return kind.read(value)
        except (TypeError, ValueError, OverflowError):
            raise BadConfig(
                f"option virt:{name}: expected {kind.accepts}, found {shown_value}"
            ) from None
    known_keys = ", ".join(sorted(kind))
    if not isinstance(value, Mapping):
        raise BadConfig(
            f"option virt:{name}: expected a mapping with {known_keys}, found {shown_value}"
        )
    unknown_keys = sorted(map(str, set(value) - set(kind)))
    if unknown_keys:
        raise BadConfig(f"option virt:{name}: unknown key {unknown_keys[0]!r}; known: {known_keys}")
    return {
        key: _read(f"{name}:{key}", kind[key], item)
        for key, item in value.items()
        if item is not None or kind[key] is ANY
    }


def _may_be_secret(name: str, value: Any) -> bool:
    """Return whether a misplaced value may be a secret, which log and job cache must not have."""
    is_plain = name == "connection" and isinstance(value, str)
    return name.rpartition(":")[2] in _SECRET and not is_plain


def _options(kinds: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that are given; an unusable one as its error."""
    source_pairs = list(map(optionsources.split_source, sources))
    values = {name: optionsources.merged_value(source_pairs, name, kinds[name]) for name in kinds}
    return {name: _or_error(name, kinds[name], v) for name, v in values.items() if v is not None}


def _or_error(name: str, kind: Kind | Mapping[str, Any], value: Any) -> Any:
    try:
        if isinstance(value, BadConfig):
            raise value
        return _read(name, kind, value)
    except BadConfig as exc:
        log.warning("%s; what needs it is refused", exc)
        return exc


def pki_options(settings: MasterSettings) -> dict[str, Any]:
    """
    Return ``virt:pki``, checked, as the CA takes it, without empty options: these have defaults.

    Only calls that make the CA sign need it: a slip there must not stop the other runners.
    """
    options = {k: item for k, item in settings.pki.items() if item not in (None, "", [], (), {})}
    kinds = {
        "organization": TEXT,
        "names": kind("a mapping of hosts to lists", lambda value: isinstance(value, Mapping)),
        "days": AT_LEAST_1,
        "requests_per_hour": AT_LEAST_1,
        "requests_per_day": AT_LEAST_1,
    }
    for name in kinds.keys() & options.keys():
        options[name] = _read(f"pki:{name}", kinds[name], options[name])
    if "days" in options:
        options["days"] = min(options["days"], _MAX_DAYS)
    if "names" in options:
        options["names"] = {host: _listed(host, names) for host, names in options["names"].items()}
    return options


def _listed(host: str, names: object) -> list[str]:
    out = [names] if isinstance(names, str) and names else names or []
    if not isinstance(out, list | tuple) or not all(isinstance(name, str) for name in out):
        raise BadConfig(
            f"option virt:pki:names: {host}: expected a list of names and "
            f"addresses, found {names!r}"
        )
    return list(out)


def connection(function: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``connection``, ``username`` and ``password`` of a call; refuse the rest."""
    refuse_unknown([key for key in keywords if key not in CONNECTION], CONNECTION, function)
    return {key: keywords[key] for key in CONNECTION if key in keywords}


def for_call(
    function: str, keywords: Mapping[str, Any], *sources: Mapping[str, Any]
) -> HostSettings:
    """
    Return the options of this hypervisor for a call with only connection keywords left.

    sources
        The minion's configuration, pillar and grains.
    """
    return host_settings(*sources, **connection(function, keywords))


def connection_settings(
    function: str, keywords: Mapping[str, Any], *sources: Mapping[str, Any]
) -> HostSettings:
    """Return the settings of :func:`for_call`, with the connection options alone."""
    return _settings(_CONNECTING, *sources, override=connection(function, keywords))


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
    return _settings(_HOST, opts, pillar, grains, override=override)


def effective_sources(
    opts: Mapping[str, Any],
    pillar: Mapping[str, Any] | None,
    grains: Mapping[str, Any] | None,
    is_change: bool = False,
) -> optionmemory.OptionsInForce:
    """Return the options' sources in force on this hypervisor, and why it refuses changes."""
    return optionmemory.options_in_force(_HOST, opts, grains, pillar, is_change=is_change)


def _settings(
    kinds: Mapping[str, Any],
    opts: Mapping[str, Any],
    pillar: Mapping[str, Any] | None,
    grains: Mapping[str, Any] | None,
    *,
    override: Mapping[str, Any],
) -> HostSettings:
    values = _options(kinds, effective_sources(opts, pillar, grains).sources)
    connection_options = _connection(values.pop("connection", {}))
    requested_uri = override.get("connection")
    if requested_uri and requested_uri != connection_options["uri"]:
        _refuse_unlisted(requested_uri, values.get("connections", ()))
        # Credentials of this host's libvirt must not reach another one that a caller names.
        if not (is_local(requested_uri) and is_local(connection_options["uri"])):
            connection_options |= dict.fromkeys(("username", "password"))
        connection_options["uri"] = requested_uri
    connection_options |= {
        name: override.get(name) or connection_options.get(name)
        for name in ("username", "password")
    }
    is_trash_set = "trash_days" in values
    # Salt 3006 had no trash.
    if not is_trash_set and values.get("compat"):
        values["trash_days"] = 0
    return HostSettings(
        **values,
        is_trash_set=is_trash_set,
        **{name: value for name, value in connection_options.items() if value},
    )


def _refuse_unlisted(uri: Any, option: Any) -> None:
    """Refuse a URI that ``virt:connections`` does not list; raise that option's error first."""
    is_bad = isinstance(option, BadConfig)
    try:
        arguments.connection(uri, () if is_bad else [option] if isinstance(option, str) else option)
    except BadArgument as refusal:
        raise (option if is_bad else refusal) from None


def is_local(uri: Any) -> bool:
    """Return whether a URI, or libvirt's default, leads to a local daemon at its usual socket."""
    if uri is None:
        return True
    return isinstance(uri, str) and re.fullmatch(r"[a-z]+(\+unix)?:///[a-z]*", uri) is not None


def _connection(option: Any) -> dict[str, Any]:
    """Return ``{uri, username, password}`` of the option; each is its error if it is unusable."""
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


def policy(settings: MasterSettings, keywords: Mapping[str, Any]) -> Policy:
    """
    Return the :class:`saltvirt.core.model.Policy` of a call.

    settings
        The master's, the defaults for what the call leaves out.
    keywords
        ``placement``, ``spread_over`` and ``headroom``; None means not given.
    """
    values = {name: value for name, value in keywords.items() if value is not None}
    placement = values.get("placement", settings.placement or "spread")
    if placement not in _PLACEMENTS:
        raise BadArgument("placement", f"{placement!r}; one of {', '.join(_PLACEMENTS)}")
    spread_tag = values.get("spread_over", settings.spread_over)
    if not isinstance(spread_tag, str | None):
        raise BadArgument("spread_over", f"{spread_tag!r} is not the name of a tag, such as rack")
    headroom = boolean("headroom", values.get("headroom", settings.headroom))
    return Policy(placement=placement, spread_over=spread_tag or None, headroom=headroom)
