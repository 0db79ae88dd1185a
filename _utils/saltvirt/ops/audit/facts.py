"""Read what there is to say from this host's files and its libvirt."""

import grp
import ipaddress
import os
import pwd
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509

from saltvirt import config, content
from saltvirt.config import HostSettings
from saltvirt.errors import BadConfig
from saltvirt.image import hardlinks
from saltvirt.kvm import query
from saltvirt.kvm.privatefiles import others_read
from saltvirt.net.firewall import forwarding
from saltvirt.ops.audit import local, release
from saltvirt.ops.audit.conffiles import Conf, Looking, Value, settings
from saltvirt.ops.certificates import enrolment, installed
from saltvirt.pki import ca
from saltvirt.placement.audited import (
    CertificateFacts,
    ConsoleFacts,
    DaemonFacts,
    DisplayFacts,
    HostAudit,
    KeyFacts,
    RevocationFacts,
)

_CONF, _PROC = Path("/etc/libvirt"), Path("/proc/net")
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
    "chardev_tls",
    "chardev_tls_x509_verify",
    "user",
    "security_driver",
)
_USES = ("libvirt", "qemu", "vnc")
_SECRET = ("vnc_password", "spice_password")
# In /proc/net/tcp: the state of a socket that listens.
_LISTENS = "0A"


def listening(tables: Iterable[str], port: int) -> list[str]:
    """Return the addresses at which a port listens, of the texts of /proc/net/tcp and tcp6."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    bound = [row[1].split(":") for row in rows if len(row) > 3 and row[3] == _LISTENS]
    return sorted({_address(address) for address, number in bound if int(number, 16) == port})


def _address(text: str) -> str:
    # Words of 32 bits, as this machine's processor has them.
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words)))


def of_host(conn: Any, options: HostSettings, basepath: str, minion_key: str) -> HostAudit:
    """
    Return what this host says of itself.

    basepath
        Where its certificates are.
    minion_key
        The private key of its minion.
    """
    look, empty = Looking(), Conf()
    confs = {name: look.at(_CONF / f"{name}.conf", settings, empty) for name in _daemons()}
    qemu = look.at(_CONF / "qemu.conf", settings, empty)
    vms = query.reachable(conn)
    places = installed.places(basepath).values()
    return HostAudit(
        code=content.of_code(),
        vms=sorted(vms),
        daemons=[_daemon(f"{_CONF / name}.conf", conf) for name, conf in confs.items()],
        local=local.facts(look, _CONF),
        plain=_plain(look, confs.values()),
        unguarded=forwarding.unguarded(),
        outdated=forwarding.outdated(),
        user_nics=sorted(vm for vm, of in vms.items() if of.sends_as_host),
        trusted=_trusted(look, basepath, confs.values()),
        revoked=_revoked(look, basepath, confs.values()),
        qemu={key: _shown(key, qemu[key]) for key in _QEMU_KEYS if key in qemu},
        displays=list(_displays(vms)),
        consoles=_consoles(vms),
        certificates=_certificates(look, places),
        keys=_keys(look, places, minion_key),
        compat=_compat(options),
        wrong_options=config.wrong(options),
        linked_images=[[image.path, image.golden or ""] for image in hardlinks.linked(options)],
        unreadable=look.unreadable,
        release=release.facts(look, conn),
        filtered=sorted(vm for vm, of in vms.items() if of.is_filtered),
        open_disks=_open_disks(vms),
    )


def _open_disks(vms: Mapping[str, query.Reachable]) -> dict[str, list[str]]:
    """Return the disks that any user of this host can read, by the VMs that write to them."""
    found = {vm: [path for path in of.written if others_read(path)] for vm, of in vms.items()}
    return {vm: paths for vm, paths in sorted(found.items()) if paths}


def _compat(options: HostSettings) -> str | None:
    try:
        return options.compat
    except BadConfig:
        # It is one of the wrong options, and gives no VM anything.
        return None


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
    )


def _shown(key: str, value: Value) -> str:
    """Return a setting as it is told; of a password only that there is one."""
    text = value if isinstance(value, str) else ", ".join(value)
    return "set" if key in _SECRET and text else text


def _plain(look: Looking, confs: Iterable[Mapping[str, Value]]) -> list[str]:
    named = [str(conf.get("tcp_port", _PLAIN_PORT)) for conf in confs] or [str(_PLAIN_PORT)]
    ports = {look.at(Path("/etc/services"), _port(name), _PLAIN_PORT) for name in named}
    tables = [look.at(_PROC / name, Path.read_text, "") for name in ("tcp", "tcp6")]
    return [address for port in sorted(ports) for address in listening(tables, port)]


def _port(name: str) -> Callable[[Path], int]:
    # libvirt takes the name of a service as well.
    return lambda _services: int(name) if name.isdecimal() else socket.getservbyname(name, "tcp")


def _trusted(
    look: Looking, basepath: str, confs: Iterable[Mapping[str, Value]]
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


def _revoked(
    look: Looking, basepath: str, confs: Iterable[Mapping[str, Value]]
) -> dict[str, RevocationFacts]:
    files = {use: pair[1] for use, pair in installed.authorities(basepath, _USES).items()}
    named = [Path(str(conf["crl_file"])) for conf in confs if conf.get("crl_file")]
    files["libvirt"] = named[0] if named else files["libvirt"]
    found = {use: look.at(path, _revocations, None) for use, path in files.items()}
    return {use: one for use, one in found.items() if one}


def _revocations(path: Path) -> RevocationFacts | None:
    lists = installed.revocation_lists(path.read_text())
    ends = [end for one in lists if (end := one.next_update_utc)]
    if not ends:
        raise ValueError("there is no list of revoked certificates in it")
    return RevocationFacts(
        path=str(path),
        ends=min(ends).isoformat(),
        serials=sorted({f"{row.serial_number:032x}" for one in lists for row in one}),
    )


def _displays(found: Mapping[str, query.Reachable]) -> Iterator[DisplayFacts]:
    for vm, of in sorted(found.items()):
        for one in of.displays:
            yield DisplayFacts(
                vm=vm,
                type=one.type or "",
                address=(one.listen or {}).get("address", ""),
                has_password=bool(one.password),
            )


def _consoles(found: Mapping[str, query.Reachable]) -> list[ConsoleFacts]:
    # libvirt shows a VM's first serial as its console as well.
    facts = (
        ConsoleFacts(vm=vm, address=one.get("host", ""), tls=one.get("tls"))
        for vm, of in sorted(found.items())
        for one in of.listeners
    )
    return list(dict.fromkeys(facts))


def _certificates(look: Looking, places: Iterable[installed.Place]) -> list[CertificateFacts]:
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


def _keys(look: Looking, places: Iterable[installed.Place], minion_key: str) -> list[KeyFacts]:
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
