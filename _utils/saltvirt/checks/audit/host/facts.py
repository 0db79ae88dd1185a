"""Read this host's facts for ``virt.audit`` from its files and its libvirt."""

import grp
import ipaddress
import os
import platform
import pwd
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509

from saltvirt.ca import ca
from saltvirt.certificates.host import enrolment, installed
from saltvirt.checks.audit.auditanswer import (
    CertificateFacts,
    ConsoleFacts,
    DaemonFacts,
    DisplayFacts,
    HostAudit,
    KeyFacts,
    LocalFacts,
    ReleaseFacts,
    RevocationFacts,
)
from saltvirt.checks.audit.host.conffiles import Conf, FileReader, Value, read_settings
from saltvirt.core import filecontent
from saltvirt.core.errors import BadConfig
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import query
from saltvirt.libvirt.domains.domainfiles import is_world_readable
from saltvirt.network.firewall import forwarding
from saltvirt.storage.images import hardlinks

_DPKG = Path("/var/lib/dpkg/status")
# Debian's packages with the code of a daemon or an emulator.
_PACKAGES = ("libvirt-daemon", "libvirt0", "qemu-system-x86", "qemu-system-arm")


def read_releases(reader: FileReader, conn: Any) -> ReleaseFacts:
    """Return the releases of this host."""
    no_packages: dict[str, str] = {}
    return ReleaseFacts(
        distribution=_distribution(),
        libvirt=str(hostfacts.versions(conn)["libvirt"]),
        packages=reader.at(_DPKG, _read_packages, no_packages),
    )


def _distribution() -> str:
    try:
        os_release: Mapping[str, str] = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{os_release.get('ID', '')} {os_release.get('VERSION_ID', '')}".strip()


def _read_packages(path: Path) -> dict[str, str]:
    """Return the versions of ``_PACKAGES`` that dpkg has on record as installed."""
    out, package, is_installed = {}, "", False
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _colon, value = line.rstrip("\n").partition(": ")
            if key == "Package":
                package, is_installed = value, False
            elif key == "Status":
                is_installed = value.endswith(" installed")
            elif key == "Version" and is_installed and package in _PACKAGES:
                out[package] = value
    return out


# Each daemon's read-write socket; virtproxyd has that of libvirtd.
_SOCKETS = {"libvirtd": "libvirt-sock", "virtproxyd": "libvirt-sock"} | {
    f"virt{kind}d": f"virt{kind}d-sock"
    for kind in (
        *("qemu", "network", "storage", "nodedev", "nwfilter", "interface", "secret"),
        *("lxc", "xen", "ch", "vbox"),
    )
}
_RUN = Path("/run/libvirt")
# Where polkit looks for operators' rules.
_POLKIT = (
    Path("/etc/polkit-1"),
    Path("/run/polkit-1"),
    Path("/usr/local/share/polkit-1"),
    Path("/var/lib/polkit-1/localauthority"),
)
# The folders below with distributions' own rules.
_VENDORS = {"10-vendor.d", "20-org.d"}
# The group that distributions' own rules admit.
_GROUP = "libvirt"
# Members of these groups are root by sudo anyway.
_ADMINISTRATORS = ("sudo", "wheel", "admin")
# A rule may test the whole name of an action, or its beginning.
_ACTION = "org.libvirt"
# By suffix: a comment, the beginning of a rule, and words that grant. The newer files have
# functions of JavaScript, the older ones sections with keys.
_KINDS = {
    ".rules": (
        re.compile(r"//[^\n]*|/\*.*?\*/", re.S),
        "addRule",
        ("Result.YES", '"yes"', "'yes'"),
    ),
    ".pkla": (re.compile(r"^\s*#[^\n]*", re.M), "[", ("=yes",)),
}


def read_local_users(reader: FileReader, conf_folder: Path) -> LocalFacts:
    """Return how this host's own users may control libvirt."""
    return LocalFacts(
        sockets=sorted(_sockets(reader, conf_folder)),
        users=_users(),
        rules=sorted(_rules(reader)),
    )


def _sockets(reader: FileReader, conf_folder: Path) -> Iterator[str]:
    for daemon, socket_name in _SOCKETS.items():
        path = conf_folder / f"{daemon}.conf"
        conf = reader.at(path, read_settings, Conf())
        # The daemon's file sets the folder, unless systemd has made the socket.
        folders = (_RUN, Path(str(conf.get("unix_sock_dir") or _RUN)))
        is_for_all = any(_is_writable_by_all(folder / socket_name) for folder in folders)
        if conf.get("auth_unix_rw") == "none" and is_for_all:
            yield str(path)


def _is_writable_by_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _users() -> list[str]:
    administrators = {user for name in _ADMINISTRATORS for user in _members(name)}
    return sorted(_members(_GROUP) - administrators - {"root"})


def _members(name: str) -> set[str]:
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return set()
    primary_members = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
    return {*group.gr_mem, *primary_members}


def _rules(reader: FileReader) -> Iterator[str]:
    for path in _files():
        if path.suffix in _KINDS and _lets_in(reader.at(path, Path.read_text, ""), path.suffix):
            yield str(path)


def _files() -> Iterator[Path]:
    for polkit_folder in _POLKIT:
        for folder, folders, names in os.walk(polkit_folder):
            folders[:] = [subfolder for subfolder in folders if subfolder not in _VENDORS]
            yield from (Path(folder, name) for name in names)


def _lets_in(text: str, kind: str) -> bool:
    """Return whether a file has a rule that admits users to libvirt; ignore its conditions."""
    comments, begin, grants = _KINDS[kind]
    rules = "".join(comments.sub("", text).split(" ")).split(begin)
    return any(_ACTION in rule and any(grant in rule for grant in grants) for rule in rules)


_CONF, _PROC = Path("/etc/libvirt"), Path("/proc/net")
_PLAIN_PORT = 16509
# The settings of qemu.conf about access to QEMU that the master judges.
_QEMU_KEYS = (
    "default_tls_x509_verify migrate_tls_force migrate_tls_x509_verify backup_tls_x509_verify "
    "vnc_listen vnc_password vnc_tls vnc_tls_x509_verify spice_listen spice_password "
    "chardev_tls chardev_tls_x509_verify user security_driver"
).split()
_USES = ("libvirt", "qemu", "vnc")
_SECRET = ("vnc_password", "spice_password")
# The state of a listening socket in /proc/net/tcp.
_LISTENS = "0A"


def listening(reader: FileReader, port: int) -> list[str]:
    """Return the addresses on which a port listens."""
    tables = [reader.at(_PROC / name, Path.read_text, "") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    local_addresses = [row[1].split(":") for row in rows if len(row) > 3 and row[3] == _LISTENS]
    return sorted(
        {_address(address) for address, number in local_addresses if int(number, 16) == port}
    )


def _address(text: str) -> str:
    # 32-bit words in this machine's byte order.
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words)))


def read_host_facts(conn: Any, options: HostSettings, basepath: str, minion_key: str) -> HostAudit:
    """
    Return the facts of this host.

    basepath
        The folder of its certificates.
    minion_key
        The path of its minion's private key.
    """
    reader, empty_conf = FileReader(), Conf()
    confs_by_daemon = {
        name: reader.at(_CONF / f"{name}.conf", read_settings, empty_conf) for name in _daemons()
    }
    qemu = reader.at(_CONF / "qemu.conf", read_settings, empty_conf)
    vms = query.reachable(conn)
    places = installed.places(basepath).values()
    return HostAudit(
        code=filecontent.of_code(),
        vms=sorted(vms),
        daemons=[_daemon(f"{_CONF / name}.conf", conf) for name, conf in confs_by_daemon.items()],
        local=read_local_users(reader, _CONF),
        plain=_find_plain_addresses(reader, confs_by_daemon.values()),
        unguarded=forwarding.find_unguarded(),
        outdated=forwarding.find_outdated(),
        user_nics=sorted(vm for vm, reachable in vms.items() if reachable.sends_as_host),
        trusted=_read_trusted(reader, basepath, confs_by_daemon.values()),
        revoked=_read_revoked(reader, basepath, confs_by_daemon.values()),
        qemu={key: _hide_secret(key, qemu[key]) for key in _QEMU_KEYS if key in qemu},
        displays=list(_displays(vms)),
        consoles=_consoles(vms),
        certificates=_certificates(reader, places),
        keys=_keys(reader, places, minion_key),
        compat=_compat(options),
        wrong_options=config.find_errors(options),
        linked_images=list(map(list, hardlinks.find_linked_images(options))),
        unreadable=reader.unreadable,
        release=read_releases(reader, conn),
        filtered=sorted(vm for vm, reachable in vms.items() if reachable.is_filtered),
        open_disks=_open_disks(vms),
    )


def _open_disks(vms: Mapping[str, query.Reachable]) -> dict[str, list[str]]:
    """Return ``{VM: disks}`` of the disks that any user of this host can read."""
    paths_by_vm = {
        vm: [path for path in reachable.written if is_world_readable(path)]
        for vm, reachable in vms.items()
    }
    return {vm: paths for vm, paths in sorted(paths_by_vm.items()) if paths}


def _compat(options: HostSettings) -> str | None:
    try:
        return options.compat
    except BadConfig:
        # It is among the wrong options, and has no effect on any VM.
        return None


def _daemons() -> list[str]:
    """Return the daemons that take TLS connections: those that run, else those configured."""
    running_daemons = [
        name for name, socket_path in enrolment.DAEMONS.items() if Path(socket_path).exists()
    ]
    return running_daemons or [
        name for name in enrolment.DAEMONS if (_CONF / f"{name}.conf").exists()
    ]


def _daemon(path: str, conf: Mapping[str, Value]) -> DaemonFacts:
    names = conf.get("tls_allowed_dn_list")
    return DaemonFacts(
        path=path,
        names=[names] if isinstance(names, str) else names,
        verifies=conf.get("tls_no_verify_certificate", "0") == "0",
    )


def _hide_secret(key: str, value: Value) -> str:
    """Return a setting as text; of a password only that it is set."""
    text = value if isinstance(value, str) else ", ".join(value)
    return "set" if key in _SECRET and text else text


def _find_plain_addresses(reader: FileReader, confs: Iterable[Mapping[str, Value]]) -> list[str]:
    port_names = [str(conf.get("tcp_port", _PLAIN_PORT)) for conf in confs] or [str(_PLAIN_PORT)]
    ports = {
        reader.at(Path("/etc/services"), _port_reader(name), _PLAIN_PORT) for name in port_names
    }
    return [address for port in sorted(ports) for address in listening(reader, port)]


def _port_reader(name: str) -> Callable[[Path], int]:
    # libvirt accepts the name of a service as well.
    return lambda _services: int(name) if name.isdecimal() else socket.getservbyname(name, "tcp")


def _read_trusted(
    reader: FileReader, basepath: str, confs: Iterable[Mapping[str, Value]]
) -> dict[str, list[str]]:
    paths_by_use = {use: [pair[0]] for use, pair in installed.authorities(basepath, _USES).items()}
    conf_paths = [Path(str(conf["ca_file"])) for conf in confs if conf.get("ca_file")]
    paths_by_use["libvirt"] = conf_paths or paths_by_use["libvirt"]
    no_fingerprints: list[str] = []
    out: dict[str, list[str]] = {}
    for use, paths in paths_by_use.items():
        fingerprints = {
            fingerprint
            for path in paths
            for fingerprint in reader.at(path, _fingerprints, no_fingerprints)
        }
        out |= {use: sorted(fingerprints)} if fingerprints else {}
    return out


def _fingerprints(path: Path) -> list[str]:
    return ca.fingerprints(path.read_bytes())


def _read_revoked(
    reader: FileReader, basepath: str, confs: Iterable[Mapping[str, Value]]
) -> dict[str, RevocationFacts]:
    path_by_use = {use: pair[1] for use, pair in installed.authorities(basepath, _USES).items()}
    conf_paths = [Path(str(conf["crl_file"])) for conf in confs if conf.get("crl_file")]
    path_by_use["libvirt"] = conf_paths[0] if conf_paths else path_by_use["libvirt"]
    revocations_by_use = {
        use: reader.at(path, _read_revocations, None) for use, path in path_by_use.items()
    }
    return {use: revocation for use, revocation in revocations_by_use.items() if revocation}


def _read_revocations(path: Path) -> RevocationFacts | None:
    lists = installed.revocation_lists(path.read_text())
    ends = [end for revocation_list in lists if (end := revocation_list.next_update_utc)]
    if not ends:
        raise ValueError("there is no list of revoked certificates in it")
    return RevocationFacts(
        path=str(path),
        ends=min(ends).isoformat(),
        serials=sorted(
            {f"{row.serial_number:032x}" for revocation_list in lists for row in revocation_list}
        ),
    )


def _displays(reachable_by_vm: Mapping[str, query.Reachable]) -> Iterator[DisplayFacts]:
    for vm, reachable in sorted(reachable_by_vm.items()):
        for display in reachable.displays:
            yield DisplayFacts(
                vm=vm,
                type=display.type or "",
                address=(display.listen or {}).get("address", ""),
                has_password=bool(display.password),
            )


def _consoles(reachable_by_vm: Mapping[str, query.Reachable]) -> list[ConsoleFacts]:
    # libvirt lists a VM's first serial port as its console, too.
    facts = (
        ConsoleFacts(vm=vm, address=listener.get("host", ""), tls=listener.get("tls"))
        for vm, reachable in sorted(reachable_by_vm.items())
        for listener in reachable.listeners
    )
    return list(dict.fromkeys(facts))


def _certificates(reader: FileReader, places: Iterable[installed.Place]) -> list[CertificateFacts]:
    certificates = (reader.at(place.certificate, _read_certificate, None) for place in places)
    return [certificate for certificate in certificates if certificate]


def _read_certificate(path: Path) -> CertificateFacts | None:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return CertificateFacts(
        path=str(path),
        serial=f"{certificate.serial_number:032x}",
        not_before=certificate.not_valid_before_utc.isoformat(),
        not_after=certificate.not_valid_after_utc.isoformat(),
    )


def _keys(reader: FileReader, places: Iterable[installed.Place], minion_key: str) -> list[KeyFacts]:
    key_facts = [
        reader.at(place.key, _key_reader(place.mode, place.group), None) for place in places
    ]
    key_facts.append(reader.at(Path(minion_key), _key_reader(0o600, None), None))
    return [key for key in key_facts if key]


def _key_reader(allowed_mode: int, reader: str | None) -> Callable[[Path], KeyFacts | None]:
    def read(path: Path) -> KeyFacts:
        status = os.stat(path)
        return KeyFacts(
            path=str(path),
            mode=stat.S_IMODE(status.st_mode),
            most=allowed_mode,
            owner=_look_up_name(lambda uid: pwd.getpwuid(uid).pw_name, status.st_uid),
            group=_look_up_name(lambda gid: grp.getgrgid(gid).gr_name, status.st_gid),
            reader=reader,
        )

    return read


def _look_up_name(look_up: Callable[[int], str], number: int) -> str:
    try:
        return look_up(number)
    except KeyError:
        return str(number)
