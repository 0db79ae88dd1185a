"""Checks of the arguments that a user typed, before anything else happens."""

import difflib
import ipaddress
import re
import urllib.parse
import uuid as uuids
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.units import size_mib

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_NAME = 63
# Arguments with passwords and keys: an error must not show them in the job cache.
_WITH_SECRETS = ("config", "graphics")
_TEST = "test:///default"
# URIs of daemons on this host: they have no host, file or folder.
_OWN_URI = re.compile(r"[a-z]+(\+unix)?:///[a-z/]*", re.IGNORECASE)
_ALIAS = re.compile(r"[A-Za-z0-9_-]+")
_RUN = ("/run/libvirt/", "/var/run/libvirt/")
_SOCKETS = {
    f"{folder}{daemon}-sock{ending}"
    for folder in _RUN
    for daemon in ("libvirt", "virtqemud", "virtproxyd")
    for ending in ("", "-ro")
}
# The query keys that a call may give, with their values, by transport.
_QUERY = {
    "": {"mode": {"auto", "direct", "legacy"}, "socket": _SOCKETS},
    "unix": {"mode": {"auto", "direct", "legacy"}, "socket": _SOCKETS},
}
_SCHEMES = r"((?:https?|s?ftps?|s3|swift)://)"
_WEB = re.compile(_SCHEMES + r"(?:[^/?#]*@)?([^?#]*)(?:[?#].*)?", re.IGNORECASE | re.DOTALL)
_LONGEST_TOLD = 400
# Deeper values are shown as Python writes them.
_DEPTH_TOLD = 8
# The same within another text, such as a list as Python writes it.
_IN_TEXT = re.compile(
    _SCHEMES + r"(?:[^/?#\s'\"]*@)?([^?#\s'\"]*)(?:[?#][^\s'\"]*)?", re.IGNORECASE
)


def vm_name(name: object) -> str:
    """Return the name if it can be a domain, a host name, a minion id and a file name."""
    if name is None:
        raise BadArgument("name", "is missing; see the command's help")
    name = text("name", name)
    if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise BadArgument(
            "name",
            f"{_short(name)!r} cannot name a VM: use letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit",
        )
    if len(name) > MAX_NAME:
        raise BadArgument("name", f"{len(name)} characters; at most {MAX_NAME} can name a VM")
    return name


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."


def text(argument: str, value: object) -> str:
    """Return a text; for what YAML reads as a number or boolean, raise with a hint to quote it."""
    if isinstance(value, str):
        return value
    hint = ""
    if isinstance(value, bool):
        hint = "; quote it as you wrote it (yes, no, on, off), on a command line twice: \"'on'\""
    elif isinstance(value, int | float):
        hint = f"; quote it, on a command line twice: \"'{value}'\""
    raise BadArgument(argument, f"{repr_without_secrets(value)} is not text{hint}")


@contextmanager
def shape_errors(argument: str) -> Iterator[None]:
    """
    Turn errors about the shape of a nested argument into a BadArgument that names the argument.

    YAML may yield lists, mappings and numbers anywhere. The message omits the value: a display's
    has a password.
    """
    try:
        yield
    except VirtError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        detail = f"{exc} is missing in it" if isinstance(exc, KeyError) else str(exc)
        raise BadArgument(
            argument,
            f"something in it is not what it should be: a list, mapping, number or text in the "
            f"place of another ({detail}); see the documentation of virt.init",
        ) from exc


def whole_number(argument: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return a whole number within bounds."""
    try:
        number = int(value)
        # Read no text as a float: above 2**53 that is another number.
        if isinstance(value, bool) or not (isinstance(value, str) or number == value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise BadArgument(argument, f"{value!r} is not a whole number") from None
    if number < least or (most is not None and number > most):
        limit = f"at least {least}" if most is None else f"between {least} and {most}"
        raise BadArgument(argument, f"{value} is out of range; give {limit}")
    return number


def plain_text(argument: str, value: object) -> str:
    """Return a text or a number as a text."""
    if isinstance(value, list | tuple | set | Mapping):
        raise BadArgument(argument, "is a list or a mapping, not a text or a number")
    return str(value)


def folder(argument: str, value: object) -> str:
    """Return an absolute path: a relative one would depend on the minion's working directory."""
    path = text(argument, value)
    if not path.startswith("/"):
        raise BadArgument(argument, f"{path!r} is not an absolute path")
    return path


def uuid(argument: str, value: object) -> str:
    """Return a UUID as libvirt writes it."""
    try:
        return str(uuids.UUID(str(value)))
    except ValueError:
        raise BadArgument(argument, f"{hide_credentials(value)!r} is not a UUID") from None


def vcpus(cpu: Any) -> int:
    """Return the most virtual CPUs the VM can have, from a number or the ``cpu`` mapping."""
    if isinstance(cpu, dict):
        if "maximum" not in cpu:
            raise BadArgument("cpu", "the mapping has no 'maximum' (the number of virtual CPUs)")
        return whole_number("cpu:maximum", cpu["maximum"], most=4096)
    return whole_number("cpu", cpu, most=4096)


def memory_mib(mem: Any) -> int:
    """Return the most memory in MiB the VM can have, from MiB or the ``mem`` mapping."""
    if isinstance(mem, dict):
        sizes = [
            size_mib(mem[key], f"mem:{key}")
            for key in ("max", "boot", "current")
            if mem.get(key) is not None
        ]
        if not sizes:
            raise BadArgument("mem", "the mapping has none of 'boot', 'current', 'max'")
        return whole_number("mem", max(sizes))
    if isinstance(mem, str) and not mem.strip().lstrip("-").isdigit():
        return whole_number("mem", size_mib(mem, "mem"))
    return whole_number("mem", mem, most=64 * 1024 * 1024)


def boolean(argument: str, value: object) -> bool:
    """Return True or False; refuse everything else."""
    if not isinstance(value, bool):
        raise BadArgument(argument, f"{value!r} is neither True nor False")
    return value


def on_off(argument: str, value: object) -> bool:
    """Return True for ``on`` and False for ``off``."""
    if value not in ("on", "off", True, False):
        raise BadArgument(argument, f"{value!r}; 'on' or 'off'")
    return value in ("on", True)


def vlans(argument: str, values: Any) -> tuple[int, ...]:
    """Return VLAN ids as a sorted tuple from numbers and texts like ``20-30``."""
    out = set()
    for value in values if isinstance(values, list | tuple) else [values]:
        first, _dash, last = str(value).partition("-")
        low = whole_number(argument, first, most=4094)
        out |= set(range(low, whole_number(argument, last or first, least=low, most=4094) + 1))
    return tuple(sorted(out))


def link_name(argument: str, value: object) -> str:
    """Return the name of a link as the kernel takes it: at most 15 characters."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,14}", value):
        raise BadArgument(
            argument, f"{value!r} cannot name a link: 1 to 15 letters, digits, '.', '_' and '-'"
        )
    return value


def object_name(kind: str, value: object) -> str:
    """Return the name of a network, pool or volume as libvirt takes it."""
    name = "" if value is None else str(value)
    if not name.strip() or "/" in name or "\n" in name:
        raise BadArgument("name", f"{name!r} cannot name a {kind}: no slash, no line break")
    return name


def address(argument: str, value: object) -> str | None:
    """Return an IP address in its usual form, or None for None."""
    try:
        return None if value is None else str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise BadArgument(argument, f"{value!r} is not an IP address") from None


def interface_addresses(argument: str, values: object) -> tuple[str, ...] | None:
    """Return addresses with their prefixes as a tuple, or None for None."""
    if values is None:
        return None
    out = []
    for value in names(argument, values):
        try:
            if "/" not in value:
                raise ValueError
            out.append(str(ipaddress.ip_interface(value)))
        except ValueError:
            raise BadArgument(
                argument, f"{value!r} is not an address with its prefix, as in 10.0.0.4/16"
            ) from None
    return tuple(out)


def share(argument: str, value: Any) -> float:
    """Return a number between 0 and 1."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadArgument(argument, f"{value!r} is not a number") from None
    if not 0 <= number <= 1:
        raise BadArgument(argument, f"{value} is out of range; give 0 to 1")
    return number


def names(argument: str, value: object) -> tuple[str, ...]:
    """Return a tuple of names from a list or a comma-separated text."""
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        value = text(argument, value).split(",")
    if not isinstance(value, list | tuple):
        raise BadArgument(argument, f"{repr_without_secrets(value)} is not a list of names")
    return tuple(str(item).strip() for item in value if str(item).strip())


def paths(argument: str, value: object) -> tuple[str, ...]:
    """Return a tuple of paths from a list, as they are, or from a comma-separated text."""
    if not isinstance(value, list | tuple):
        return names(argument, value)
    return tuple(text(argument, item) for item in value)


def mapping(argument: str, value: object) -> dict[Any, Any] | None:
    """Return the value if it is a mapping or None."""
    if value is not None and not isinstance(value, dict):
        prefix = "" if argument in _WITH_SECRETS else f"{repr_without_secrets(value)} "
        raise BadArgument(argument, f"{prefix}is not a mapping")
    return value


def mappings(argument: str, value: object) -> tuple[dict[Any, Any], ...] | None:
    """Return a tuple of mappings, or None if nothing was given."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(item, dict) for item in value):
        raise BadArgument(argument, f"{repr_without_secrets(value)} is not a list of mappings")
    return tuple(value)


def refuse_unknown(given_names: Iterable[str], known_names: Iterable[str], callee: str) -> None:
    """Raise a BadArgument that names the first unknown keyword, and a similar known one."""
    known_names = sorted(set(known_names))
    for keyword in sorted(given_names):
        if keyword.startswith("__"):
            continue
        near_names = difflib.get_close_matches(keyword, known_names, n=1)
        hint = (
            f"did you mean {near_names[0]!r}?" if near_names else f"known: {', '.join(known_names)}"
        )
        raise BadArgument(f"{callee} has no argument {keyword!r}", hint)


def hide_credentials(source: object) -> str:
    """Return a source without the credentials and the query that a web URL may have."""
    match = _WEB.fullmatch(str(source))
    return f"{match[1]}{match[2]}" if match else _IN_TEXT.sub(r"\1\2", str(source))


def repr_without_secrets(value: object) -> str:
    """
    Return a value as Python writes it, without secrets in URLs.

    The text is cut: a minion may have sent any amount, and the master logs it.
    """
    text = _IN_TEXT.sub(r"\1\2", repr(without_secrets(value)))
    return text if len(text) <= _LONGEST_TOLD else f"{text[:_LONGEST_TOLD]} ..."


def without_secrets(value: object, depth: int = _DEPTH_TOLD) -> object:
    """Return a value without credentials in its texts; in its repr, a URL has no clear end."""
    if isinstance(value, str):
        return hide_credentials(value)
    if isinstance(value, dict) and depth:
        return {without_secrets(k, 0): without_secrets(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list | tuple) and depth:
        values = [without_secrets(item, depth - 1) for item in value]
        return tuple(values) if isinstance(value, tuple) else values
    return value


def connection(value: object, listed_uris: Collection[str] = ()) -> str:
    """
    Return the URI of a libvirt that a call names; refuse one that is neither local nor listed.

    listed_uris
        The option ``virt:connections``: URIs that calls may name verbatim.

    A caller who may inspect one host must not reach others with this host's certificate or key, and
    must not choose what the host's root runs, opens or connects to. So a call names a daemon of
    this host by its usual socket, libvirt's test driver, an alias of the host's own
    ``libvirt.conf``, or a listed URI.
    """
    uri = text("connection", value)
    if uri in listed_uris or _ALIAS.fullmatch(uri):
        return uri
    if not _is_own_uri(uri):
        # The part after the host may contain a command or a path.
        location, mark, _query = hide_credentials(uri).partition("?")
        location = location.rpartition("@")[2] + ("?..." if mark else "")
        raise BadArgument(
            "connection",
            f"{_short(location)!r} is neither a daemon of this host, such as "
            f"qemu:///system, nor {_TEST}, and virt:connections of this host does not list the "
            "whole URI; list it there if calls may use it",
        )
    return uri


def _is_own_uri(uri: str) -> bool:
    """Return whether a URI leads to a usual socket of this host, or to the test driver."""
    # libvirt also decodes %3B, and splits a query at ';': no accepted URI needs either.
    if not uri.isascii() or not uri.isprintable() or set(uri) & set(" %;#\\"):
        return False
    try:
        parts = urllib.parse.urlsplit(uri)
    except ValueError:
        return False
    driver, _plus, transport = parts.scheme.partition("+")
    if driver == "test":
        return uri == _TEST
    is_own_uri = _OWN_URI.fullmatch(uri.partition("?")[0]) and "embed" not in parts.path.lower()
    return bool(is_own_uri) and _is_harmless(parts.query, _QUERY.get(transport, {}))


def _is_harmless(query: str, values_by_key: Mapping[str, Collection[str]]) -> bool:
    """Return whether a query has accepted keys and values alone, and each key once."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&")] if query else []
    is_once = len(pairs) == len(dict(pairs))
    return is_once and all(value in values_by_key.get(key, ()) for key, value in pairs)


def is_image(text: object) -> bool:
    """Return whether a text is an image source, not the name of a profile."""
    return isinstance(text, str) and "/" in text


def refuse_unknown_keys(
    argument: str, value: Iterable[object], known_keys: Collection[str]
) -> None:
    """Refuse a mapping with an unknown key."""
    refuse_unknown([key for key in map(str, value) if key not in known_keys], known_keys, argument)
