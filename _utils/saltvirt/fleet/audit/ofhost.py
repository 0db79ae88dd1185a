"""Judge what hosts say of themselves: pure functions, each of which yields what falls short."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from saltvirt.errors import VirtError
from saltvirt.fleet.audit import imagechecks, ofvms, releases
from saltvirt.fleet.audit.masterfacts import Known
from saltvirt.fleet.findings import Finding, apply, sync
from saltvirt.fleet.membership import Members
from saltvirt.placement.audited import (
    CertificateFacts,
    HostAudit,
    KeyFacts,
    LocalFacts,
)

# What the names of this cloud's hypervisors begin with; see saltvirt.pki.ca.subject.
_UNIT = "OU=salt-virt hypervisor"
# A host renews its certificates when a third of their life is left.
_OVERDUE = 4
# What QEMU is to do, and what it does if its file says nothing (libvirt's qemu.conf).
_QEMU = {
    "migrate_tls_force": "migrations need no TLS",
    "migrate_tls_x509_verify": "whoever reaches its ports can send it a VM",
    "backup_tls_x509_verify": "whoever reaches its NBD ports can read disks",
}


class NotUnderstood(VirtError):
    """A host's answer has an impossible time."""


def findings(host: str, facts: HostAudit, known: Known) -> Iterator[Finding]:
    """Yield all that falls short on a host."""
    yield from _listening(host, facts)
    yield from _forwarding(host, facts.unguarded)
    yield from _outdated(host, facts.outdated)
    yield from imagechecks.linked_images(host, facts.linked_images)
    yield from _local(host, facts.local)
    yield from _trust(host, facts, known)
    yield from _revocations(host, facts, known)
    yield from _qemu(host, facts)
    yield from ofvms.findings(host, facts)
    yield from _options(host, facts)
    if facts.release is not None:
        yield from releases.findings(host, facts.release)
        yield from releases.filters(host, facts.release, facts.filtered)
    for one in facts.certificates:
        yield from _certificate(host, one, known)
    for key in facts.keys:
        yield from _key(host, key)
    if facts.code != known.code:
        yield Finding(
            check="code",
            where=host,
            what="its code is not that of this master",
            fix=sync(host),
        )
    for path, why in sorted(facts.unreadable.items()):
        yield Finding(
            check="not-checked",
            where=host,
            what=f"{path} cannot be read: {why}",
            fix=f"see to it, {_again(host)}",
        )


def silent(host: str, why: str) -> Finding:
    """Return what is to be said of a host that could not be asked."""
    name = shlex.quote(host)
    # That of an older release has no such function.
    see = f"salt {name} saltutil.sync_all; " if "is not available" in why else ""
    return Finding(
        check="not-checked",
        where=host,
        what=f"nothing of it was looked at: {why}",
        fix=f"{see}see what it says: salt {name} virt.audit; {_again(host)}",
    )


def guests(members: Members, found: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Yield the VMs whose minions would be taken for hypervisors: ``{name: hosts}``."""
    for name, hosts in sorted(found.items()):
        named = members.is_named(name)
        yield Finding(
            check="hypervisors",
            where=name,
            what=f"it is a VM on {' and '.join(hosts)}, and {members.reserved(name)}",
            fix="rename or remove that VM"
            if named
            else f"narrow virt:hypervisors, or salt-run virt.disallow {shlex.quote(name)}",
        )


def _again(host: str) -> str:
    return f"then salt-run virt.audit again ({host})"


def _keys(host: str) -> str:
    return f"salt-run virt_pki.renew {shlex.quote(host)}"


def _listening(host: str, facts: HostAudit) -> Iterator[Finding]:
    for address in facts.plain:
        yield Finding(
            check="libvirt-open",
            where=host,
            what=f"something listens at {address} on libvirt's port without TLS",
            fix=f"salt {shlex.quote(host)} service.disable libvirtd-tcp.socket, then service.stop; "
            "on modular hosts virtproxyd-tcp.socket",
        )
    for daemon in facts.daemons:
        if not daemon.verifies:
            yield Finding(
                check="libvirt-open",
                where=host,
                what=f"tls_no_verify_certificate in {daemon.path}: whoever reaches it is root",
                fix=f"take it out, then restart the daemon: {apply(host, 'hypervisor.libvirt')}",
            )


def _forwarding(host: str, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            check="firewall",
            where=host,
            what=f"beside the rules {name} of its firewall nothing keeps back what it forwards: "
            "its guests on a NAT network reach libvirt and QEMU of the other hypervisors",
            fix=f"salt {shlex.quote(host)} pkg.install nftables, then "
            f"{apply(host, 'hypervisor.firewall')}",
        )


def _outdated(host: str, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            check="firewall",
            where=host,
            what=f"the rules {name} of its firewall are of an earlier release: they let guests "
            "with NAT through to libvirt and QEMU of the other hypervisors",
            fix=f"{apply(host, 'hypervisor.firewall')}, or the state that sets them",
        )


def _local(host: str, facts: LocalFacts) -> Iterator[Finding]:
    """Yield which of the host's own users are as good as root by libvirt."""
    for path in facts.sockets:
        yield Finding(
            check="libvirt-open",
            where=host,
            what=f"auth_unix_rw is none in {path}, and any user may use its socket",
            fix='unix_sock_rw_perms = "0770" there (SocketMode=0660 of its socket unit)',
        )
    for user in facts.users:
        yield Finding(
            check="libvirt-users",
            where=host,
            what=f"{user} is in the group libvirt, and so as good as root",
            fix=f"there: gpasswd -d {shlex.quote(user)} libvirt; or make it an administrator",
        )
    for path in facts.rules:
        yield Finding(
            check="libvirt-users",
            where=host,
            what=f"{path} lets somebody use libvirt without a password, who is so as good as root",
            fix=f"look at it there: cat {shlex.quote(path)}; take that rule out",
        )


def _trust(host: str, facts: HostAudit, known: Known) -> Iterator[Finding]:
    for daemon in facts.daemons:
        others = [one for one in daemon.names or () if not one.startswith(_UNIT)]
        if daemon.names is None or others:
            whom = ", ".join(others) or "any certificate of its CA"
            yield Finding(
                check="libvirt-trust",
                where=host,
                what=f"tls_allowed_dn_list in {daemon.path} lets in {whom}",
                fix=f"{apply(host, 'hypervisor.libvirt')} (pillar hypervisor:tls_allowed_dn_list)",
            )
    for use, trusted in sorted(facts.trusted.items()):
        strangers = sorted(set(trusted) - known.trusted.get(use, frozenset()))
        if strangers:
            yield Finding(
                check="libvirt-trust",
                where=host,
                what=f"for {use} it trusts a CA that is not this cloud's (SHA-256 "
                f"{strangers[0][:16]}…)",
                fix=f"{apply(host, 'hypervisor.keys')}, then look for what it let in",
            )


def _revocations(host: str, facts: HostAudit, known: Known) -> Iterator[Finding]:
    for use in sorted(facts.trusted):
        heeded = facts.revoked.get(use)
        missing = known.listed.get(use, frozenset()).difference(heeded.serials if heeded else ())
        why = None
        if heeded and (end := _time(host, heeded.ends)) <= known.now:
            why = f"{heeded.path} ran out on {end:%Y-%m-%d}: it trusts nobody for {use}"
        elif missing:
            what = "a revoked certificate" if len(missing) == 1 else f"{len(missing)} revoked ones"
            why = f"for {use} it still takes {what} (serial {min(missing)})"
        if why:
            yield Finding(check="certificates", where=host, what=why, fix=_keys(host))


def _qemu(host: str, facts: HostAudit) -> Iterator[Finding]:
    conf = facts.qemu
    default = conf.get("default_tls_x509_verify", "1")
    is_on = {
        "migrate_tls_force": conf.get("migrate_tls_force", "0"),
        "migrate_tls_x509_verify": conf.get("migrate_tls_x509_verify", default),
        "backup_tls_x509_verify": conf.get("backup_tls_x509_verify", default),
    }
    for key, value in is_on.items():
        if value != "1":
            yield Finding(
                check="qemu-tls",
                where=host,
                what=f"{key} is off in qemu.conf: {_QEMU[key]}",
                fix=f"if pillar hypervisor:qemu_conf has it, take it out; then "
                f"{apply(host, 'hypervisor.libvirt')}",
            )
    yield from _rights(host, conf)


def _rights(host: str, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what gives a guest that breaks out of its QEMU more than that VM."""
    what = []
    if conf.get("user", "").lstrip("+") in ("root", "0"):
        what.append("user is root: who breaks out of a QEMU is root on the host")
    if "none" in conf.get("security_driver", "").split(", "):
        what.append("security_driver is none: who breaks out of a QEMU has the disks of all VMs")
    for one in what:
        yield Finding(
            check="qemu-rights",
            where=host,
            what=f"in qemu.conf {one}",
            fix="take that line out, restart libvirtd (virtqemud), then stop and start the VMs",
        )


def _options(host: str, facts: HostAudit) -> Iterator[Finding]:
    take_out = f"its minion's configuration, grains or pillar, then {_reread(host)}"
    if facts.compat:
        yield Finding(
            check="compat",
            where=host,
            what=f"virt:compat is {facts.compat}: displays, and consoles over TCP, of new VMs "
            "listen on all addresses unless a call says where",
            fix=f"take virt:compat out of {take_out}",
        )
    for why in facts.wrong_options:
        yield Finding(
            check="wrong-options",
            where=host,
            what=f"{why}; what needs it is refused there",
            fix=f"mend it in {take_out}",
        )


def _reread(host: str) -> str:
    return f"salt {shlex.quote(host)} saltutil.refresh_pillar, or restart that minion"


def _time(host: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NotUnderstood(
            f"{host}'s answer is not understood: it has an impossible time"
        ) from None
    if found.tzinfo is None:
        raise NotUnderstood(f"{host}'s answer is not understood: it has a time without a zone")
    return found


def _certificate(host: str, one: CertificateFacts, known: Known) -> Iterator[Finding]:
    begin, end = _time(host, one.not_before), _time(host, one.not_after)
    owner = known.issued.get(one.serial)
    why, fix = None, _keys(host)
    if end <= known.now:
        why = f"ran out on {end:%Y-%m-%d}"
    elif one.serial in known.revoked:
        why = "was revoked"
    elif owner is None:
        why = "is in no record of this master's CAs"
        fix = f"find out who made it; {fix}, and if its CA is not this cloud's, hypervisor.keys"
    elif owner != host:
        why = f"is that of {owner}"
        fix = f"salt-run virt_pki.revoke {one.serial}; {fix}; {_keys(owner)}"
    elif (end - known.now) * _OVERDUE < end - begin:
        why = f"runs out on {end:%Y-%m-%d}, and was not renewed in time"
    if why is not None:
        yield Finding(
            check="certificates",
            where=host,
            what=f"{one.path} {why} (serial {one.serial[:40]})",
            fix=fix,
        )


def _key(host: str, key: KeyFacts) -> Iterator[Finding]:
    reader = key.reader if key.mode & 0o070 and key.reader else key.group
    why = None
    if key.mode & ~key.most & 0o7777:
        why = f"can be used by others (mode {key.mode:04o})"
    elif key.owner != "root":
        why = f"belongs to {key.owner}"
    elif key.mode & 0o070 and key.group != reader:
        why = f"can be read by the group {key.group}"
    if why is not None:
        is_minions = key.path.endswith("minion.pem")
        path = shlex.quote(key.path)
        yield Finding(
            check="host-keys",
            where=host,
            what=f"{key.path} {why}",
            fix=f"there: chown root {path}; chmod 400 {path}; then give the minion a new key"
            if is_minions
            else f"{apply(host, 'hypervisor.keys')} makes a new one",
        )
