"""The ``virt:`` options of a minion and of a master, read once and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from saltvirt.arguments import refuse_unknown
from saltvirt.errors import BadConfig

# Options that are mappings, and what may stand in them: a misspelt key would mean nothing.
_INSIDE = {
    "pki": {"allow", "days", "key_type", "organization", "names"},
    "capacity": {"vcpus", "memory_mib", "disk_mib"},
    "seed": {"master", "config", "method", "python", "limit_s", "memory_mib", "user_data",
             "vendor_data", "install_from", "bootstrap", "allow_host_mount"},
    "vnc": {"listen", "password", "keymap"},
    "weights": {"memory", "cpu", "disk"},
}  # fmt: skip
# Longer than any CA; more would be no date.
_MAX_DAYS = 36500
CONNECTION = ("connection", "username", "password")
DEFAULT_NIC = [{"name": "eth0", "type": "bridge", "source": "br0", "model": "virtio"}]
DEFAULT_DISK = [{"name": "system", "size": 8192}]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Options of a hypervisor (minion configuration, grains or pillar, below ``virt:``)."""

    uri: str = "qemu:///system"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    images: str = "/srv/salt-images"
    image_max_gib: int = 2048
    storagepool: str | None = None
    hypervisor: str | None = None
    nic: dict = field(default_factory=dict)
    disk: dict = field(default_factory=dict)
    cpu_ratio: float = 4.0
    memory_ratio: float = 1.0
    reserve_mib: int = 512
    disk_ratio: float = 1.0
    disk_reserve_mib: int = 1024
    capacity: dict = field(default_factory=dict)
    vnc: dict = field(default_factory=dict)
    console_log: bool = True
    seed: dict = field(default_factory=dict)
    state_dir: str = "/var/lib/salt-virt"
    shared_paths: list = field(default_factory=list)
    backing_paths: list = field(default_factory=list)
    tunnel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """Options of the runner (master configuration, below ``virt:``)."""

    hypervisors: str = "G@virt_hypervisor:True"
    timeout_s: int = 10
    deploy_timeout_s: int = 1800
    wait_s: int = 300
    weights: dict = field(default_factory=dict)
    pki: dict = field(default_factory=dict)


def option(sources, name):
    """Return the first of ``virt:name`` and ``virt.name`` that a source has, else None."""
    for source in sources:
        nested = source.get("virt")
        if isinstance(nested, Mapping) and nested.get(name) is not None:
            return nested[name]
        if source.get(f"virt.{name}") is not None:
            return source[f"virt.{name}"]
    return None


def _number(name, value, kind):
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise BadConfig(f"option virt:{name}: {value!r} is no number") from None
    if number < 0:
        raise BadConfig(f"option virt:{name}: {value!r} is negative")
    return number


def _checked(kind, values):
    out = {}
    for name, default in ((f.name, f.type) for f in kind.__dataclass_fields__.values()):
        value = values.get(name)
        if value is None:
            continue
        if default in (int, float):
            value = _number(name, value, default)
        elif default is dict and not isinstance(value, Mapping):
            raise BadConfig(f"option virt:{name}: expected a mapping, found {value!r}")
        elif default is dict and set(value) - _INSIDE.get(name, set(value)):
            unknown = sorted(map(str, set(value) - _INSIDE[name]))[0]
            known = ", ".join(sorted(_INSIDE[name]))
            raise BadConfig(f"option virt:{name}: unknown key {unknown!r}; known: {known}")
        elif default is list and (
            not isinstance(value, list | tuple) or not all(str(v).startswith("/") for v in value)
        ):
            raise BadConfig(f"option virt:{name}: expected absolute paths, found {value!r}")
        elif default is bool and not isinstance(value, bool):
            raise BadConfig(f"option virt:{name}: expected True or False, found {value!r}")
        out[name] = value
    return kind(**out)


def pki_options(settings):
    """
    Return ``virt:pki``, checked, as the CA takes it; what is empty is left out, for the default.

    Only what makes the CA sign asks for it: a slip there must not stop the other runners.
    """
    # Empty, ``allow`` lets nobody in; its default would let in every hypervisor.
    given = {key: value for key, value in settings.pki.items()
             if key == "allow" or value not in (None, "", [], (), {})}  # fmt: skip
    checks = {
        "allow": (str | list | tuple, "expected a compound target"),
        "organization": (str, "expected text"),
        "names": (Mapping, "expected a mapping of hosts to lists"),
    }
    for name, (kind, wanted) in checks.items():
        if name in given and not isinstance(given[name], kind):
            raise BadConfig(f"option virt:pki:{name}: {wanted}, found {given[name]!r}")
    if "days" in given:
        days = _number("pki:days", given["days"], int)
        if not days:
            raise BadConfig(f"option virt:pki:days: {given['days']!r}; at least 1")
        given["days"] = min(days, _MAX_DAYS)
    if "names" in given:
        given["names"] = {host: _listed(host, names) for host, names in given["names"].items()}
    return given


def _listed(host, names):
    out = [names] if isinstance(names, str) and names else names or []
    if not isinstance(out, list | tuple) or not all(isinstance(name, str) for name in out):
        raise BadConfig(f"option virt:pki:names: {host}: expected a list of names and "
                        f"addresses, found {names!r}")  # fmt: skip
    return list(out)


def connection(function, given):
    """Return the ``connection``, ``username`` and ``password`` of a call; refuse the rest."""
    refuse_unknown([key for key in given if key not in CONNECTION], CONNECTION, function)
    return {key: given[key] for key in CONNECTION if key in given}


def for_call(function, given, opts, pillar, grains):
    """Return the options of this hypervisor for a call with only connection keywords left."""
    return host_settings(opts, pillar, grains, **connection(function, given))


def host_settings(opts, pillar=None, grains=None, **override):
    """
    Return the options of this hypervisor.

    Minion configuration wins over grains, grains over pillar, as with Salt's own
    ``config.get``; ``override`` (``connection``, ``username``, ``password``) wins over all.
    """
    sources = [source for source in (opts, grains, pillar) if source]
    values = {name: option(sources, name) for name in HostSettings.__dataclass_fields__}
    connection = option(sources, "connection") or {}
    auth = connection.get("auth") or {}
    values["uri"] = override.get("connection") or connection.get("uri")
    values["username"] = override.get("username") or auth.get("username")
    values["password"] = override.get("password") or auth.get("password")
    settings = _checked(HostSettings, values)
    if not settings.images.startswith("/"):
        raise BadConfig(f"option virt:images: {settings.images!r} is not an absolute path")
    return settings


def master_settings(opts):
    """Return the options of the runner."""
    values = {name: option([opts], name) for name in MasterSettings.__dataclass_fields__}
    return _checked(MasterSettings, values)
