"""What this host says of itself to ``virt.audit``, read from its files and its libvirt."""

import grp
import ipaddress
import os
import pwd
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509

from saltvirt import content
from saltvirt.kvm import query
from saltvirt.ops.certificates import enrolment, installed
from saltvirt.pki import ca
from saltvirt.placement.audited import (
    CertificateFacts,
    DaemonFacts,
    DisplayFacts,
    HostAudit,
    KeyFacts,
)

_CONF, _PROC = Path("/etc/libvirt"), Path("/proc/net")
_SOCKET = Path("/run/libvirt/libvirt-sock")
_PLAIN_PORT = 16509
# What qemu.conf may say of who reaches QEMU, and is judged.
_QEMU_KEYS = (
    "default_tls_x509_verify",
    "migrate_tls_force",
    "migrate_tls_x509_verify",
    "backup_tls_x509_verify",
    "vnc_listen",
    "vnc_password",
    "vnc_tls",
    "vnc_tls_x509_verify",
    "spice_listen",
    "spice_password",
    "user",
    "security_driver",
)
_USES = ("libvirt", "qemu", "vnc")
_SECRET = ("vnc_password", "spice_password")
_SETTING = r'^[ \t]*(\w+)[ \t]*=[ \t]*(\[[^\]]*\]|"[^"\n]*"|[^\s#]+)'
_TEXT = r'"([^"\n]*)"'
# In /proc/net/tcp: the state of a socket that listens.
_LISTENS = "0A"

Value = str | list[str]
Conf = dict[str, Value]
_Found = TypeVar("_Found")


def settings_of(text: str) -> Conf:
    """Return what a configuration file of libvirt sets: texts, and lists of them."""
    # A comment within a list is not one of its texts.
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {key: _value(raw) for key, raw in re.findall(_SETTING, "\n".join(lines), re.M)}


def _value(raw: str) -> Value:
    texts = re.findall(_TEXT, raw)
    if raw.startswith("["):
        return texts
    return str(texts[0]) if texts else raw


def listening(tables: Iterable[str], port: int) -> list[str]:
    """Return the addresses at which a port listens, of the texts of /proc/net/tcp and tcp6."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    local = [row[1].split(":") for row in rows if len(row) > 3 and row[3] == _LISTENS]
    return sorted({_address(address) for address, number in local if int(number, 16) == port})


def _address(text: str) -> str:
    # Words of 32 bits, as this machine's processor has them.
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words)))


def facts(conn: Any, basepath: str, minion_key: str) -> HostAudit:
    """
    Return what this host says of itself.

    basepath
        Where its certificates are.
    minion_key
        The private key of its minion.
    """
    look, empty = _Looking(), Conf()
    confs = {name: look.at(_CONF / f"{name}.conf", _settings, empty) for name in _daemons()}
    qemu = look.at(_CONF / "qemu.conf", _settings, empty)
    displays = query.displays(conn)
    places = installed.places(basepath).values()
    return HostAudit(
        code=content.of_code(),
        vms=sorted(displays),
        daemons=[_daemon(f"{_CONF / name}.conf", conf) for name, conf in confs.items()],
        plain=_plain(look, confs.values()),
        trusted=_trusted(look, basepath, confs.values()),
        qemu={key: _shown(key, qemu[key]) for key in _QEMU_KEYS if key in qemu},
        displays=list(_displays(displays)),
        certificates=_certificates(look, places),
        keys=_keys(look, places, minion_key),
        unreadable=look.unreadable,
    )


class _Looking:
    """Reads files one by one: what is not there is passed over, what cannot be read is noted."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def at(self, path: Path, read: Callable[[Path], _Found], without: _Found) -> _Found:
        try:
            return read(path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as exc:
            self.unreadable[str(path)] = getattr(exc, "strerror", None) or str(exc)
        return without


def _settings(path: Path) -> Conf:
    return settings_of(path.read_text(encoding="utf-8"))


def _daemons() -> list[str]:
    """Return the daemons that take TLS connections: those that run, else those configured."""
    running = [name for name, socket in enrolment.DAEMONS.items() if Path(socket).exists()]
    return running or [name for name in enrolment.DAEMONS if (_CONF / f"{name}.conf").exists()]


def _daemon(path: str, conf: Mapping[str, Value]) -> DaemonFacts:
    names = conf.get("tls_allowed_dn_list")
    return DaemonFacts(
        path=path,
        names=[names] if isinstance(names, str) else names,
        verifies=conf.get("tls_no_verify_certificate", "0") == "0",
        is_open_here=conf.get("auth_unix_rw") == "none" and _is_for_all(_SOCKET),
    )


def _is_for_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _shown(key: str, value: Value) -> str:
    """Return a setting as it is told; of a password only that there is one."""
    text = value if isinstance(value, str) else ", ".join(value)
    return "set" if key in _SECRET and text else text


def _plain(look: _Looking, confs: Iterable[Mapping[str, Value]]) -> list[str]:
    ports = {int(str(conf.get("tcp_port", _PLAIN_PORT))) for conf in confs} or {_PLAIN_PORT}
    tables = [look.at(_PROC / name, Path.read_text, "") for name in ("tcp", "tcp6")]
    return [address for port in sorted(ports) for address in listening(tables, port)]


def _trusted(
    look: _Looking, basepath: str, confs: Iterable[Mapping[str, Value]]
) -> dict[str, list[str]]:
    files = {use: [pair[0]] for use, pair in installed.authorities(basepath, _USES).items()}
    named = [Path(str(conf["ca_file"])) for conf in confs if conf.get("ca_file")]
    files["libvirt"] = named or files["libvirt"]
    nothing: list[str] = []
    out: dict[str, list[str]] = {}
    for use, paths in files.items():
        found = {one for path in paths for one in look.at(path, _fingerprints, nothing)}
        out |= {use: sorted(found)} if found else {}
    return out


def _fingerprints(path: Path) -> list[str]:
    return ca.fingerprints(path.read_bytes())


def _displays(found: Mapping[str, Iterable[Any]]) -> Iterator[DisplayFacts]:
    for vm, displays in sorted(found.items()):
        for one in displays:
            yield DisplayFacts(
                vm=vm,
                type=one.type or "",
                address=(one.listen or {}).get("address", ""),
                has_password=bool(one.password),
            )


def _certificates(look: _Looking, places: Iterable[installed.Place]) -> list[CertificateFacts]:
    found = (look.at(place.certificate, _certificate, None) for place in places)
    return [one for one in found if one]


def _certificate(path: Path) -> CertificateFacts | None:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    return CertificateFacts(
        path=str(path),
        serial=f"{found.serial_number:032x}",
        not_before=found.not_valid_before_utc.isoformat(),
        not_after=found.not_valid_after_utc.isoformat(),
    )


def _keys(look: _Looking, places: Iterable[installed.Place], minion_key: str) -> list[KeyFacts]:
    found = [look.at(place.key, _key(place.mode, place.group), None) for place in places]
    found.append(look.at(Path(minion_key), _key(0o600, None), None))
    return [one for one in found if one]


def _key(most: int, reader: str | None) -> Callable[[Path], KeyFacts | None]:
    def read(path: Path) -> KeyFacts:
        found = os.stat(path)
        return KeyFacts(
            path=str(path),
            mode=stat.S_IMODE(found.st_mode),
            most=most,
            owner=_name(lambda uid: pwd.getpwuid(uid).pw_name, found.st_uid),
            group=_name(lambda gid: grp.getgrgid(gid).gr_name, found.st_gid),
            reader=reader,
        )

    return read


def _name(of: Callable[[int], str], number: int) -> str:
    try:
        return of(number)
    except KeyError:
        return str(number)
