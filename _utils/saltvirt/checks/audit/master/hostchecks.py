"""Judge hosts' answers: pure functions that yield findings."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from saltvirt.checks.audit.auditanswer import CertificateFacts, HostAudit, KeyFacts, LocalFacts
from saltvirt.checks.audit.master import imagechecks, releases, vmchecks
from saltvirt.checks.audit.master.masterfacts import Baseline
from saltvirt.cluster.membership import Members
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import Finding, apply_command, sync_command

# The beginning of this cloud's certificate subjects; see saltvirt.ca.ca.subject.
_UNIT = "OU=salt-virt hypervisor"
# A host renews a certificate with a third of its life left; with a quarter left it is overdue.
_OVERDUE = 4
# Settings of qemu.conf that must be on, and the consequence where a setting is off.
_QEMU = {
    "migrate_tls_force": "migrations need no TLS",
    "migrate_tls_x509_verify": "whoever reaches its ports can send it a VM",
    "backup_tls_x509_verify": "whoever reaches its NBD ports can read disks",
}


class ImpossibleTime(VirtError):
    """A host's answer has an impossible time."""


def findings(host: str, facts: HostAudit, baseline: Baseline) -> Iterator[Finding]:
    """Yield all findings of a host."""
    yield from _open_ports(host, facts)
    yield from _forwarding(host, facts.unguarded)
    yield from _outdated_firewall(host, facts.outdated)
    yield from imagechecks.linked_images(host, facts.linked_images)
    yield from _local_users(host, facts.local)
    yield from _trust(host, facts, baseline)
    yield from _revocations(host, facts, baseline)
    yield from _qemu(host, facts)
    yield from vmchecks.findings(host, facts)
    yield from _options(host, facts)
    if facts.release is not None:
        yield from releases.findings(host, facts.release)
        yield from releases.filters(host, facts.release, facts.filtered)
    for certificate in facts.certificates:
        yield from _certificate(host, certificate, baseline)
    for key in facts.keys:
        yield from _key(host, key)
    if facts.code != baseline.code:
        yield Finding(
            check="code",
            where=host,
            what="its code is not that of this master",
            fix=sync_command(host),
        )
    for path, reason in sorted(facts.unreadable.items()):
        yield Finding(
            check="not-checked",
            where=host,
            what=f"{path} cannot be read: {reason}",
            fix=f"see to it, {_repeat_command(host)}",
        )


def describe_unresponsive_host(host: str, reason: str) -> Finding:
    """Return the finding about a host without a usable answer."""
    name = shlex.quote(host)
    # A host with an older release lacks the function.
    sync_command = f"salt {name} saltutil.sync_all; " if "is not available" in reason else ""
    return Finding(
        check="not-checked",
        where=host,
        what=f"nothing of it was looked at: {reason}",
        fix=f"{sync_command}see what it says: salt {name} virt.audit; {_repeat_command(host)}",
    )


def find_guests_like_hosts(
    members: Members, hosts_by_guest: Mapping[str, Iterable[str]]
) -> Iterator[Finding]:
    """Yield a finding for each VM with a minion that would be taken for a hypervisor."""
    for name, hosts in sorted(hosts_by_guest.items()):
        is_named = members.is_named(name)
        yield Finding(
            check="hypervisors",
            where=name,
            what=f"it is a VM on {' and '.join(hosts)}, and {members.reserved(name)}",
            fix="rename or remove that VM"
            if is_named
            else f"narrow virt:hypervisors, or salt-run virt.disallow {shlex.quote(name)}",
        )


def _repeat_command(host: str) -> str:
    return f"then salt-run virt.audit again ({host})"


def _renew_command(host: str) -> str:
    return f"salt-run virt_pki.renew {shlex.quote(host)}"


def _open_ports(host: str, facts: HostAudit) -> Iterator[Finding]:
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
                fix="take it out, then restart the daemon: "
                f"{apply_command(host, 'hypervisor.libvirt')}",
            )


def _forwarding(host: str, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            check="firewall",
            where=host,
            what=f"beside the rules {name} of its firewall nothing keeps back what it forwards: "
            "its guests on a NAT network reach libvirt and QEMU of the other hypervisors",
            fix=f"salt {shlex.quote(host)} pkg.install nftables, then "
            f"{apply_command(host, 'hypervisor.firewall')}",
        )


def _outdated_firewall(host: str, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            check="firewall",
            where=host,
            what=f"the rules {name} of its firewall are of an earlier release: they let guests "
            "with NAT through to libvirt and QEMU of the other hypervisors",
            fix=f"{apply_command(host, 'hypervisor.firewall')}, or the state that sets them",
        )


def _local_users(host: str, facts: LocalFacts) -> Iterator[Finding]:
    """Yield the ways by which local users of a host become root through libvirt."""
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


def _trust(host: str, facts: HostAudit, baseline: Baseline) -> Iterator[Finding]:
    for daemon in facts.daemons:
        foreign_names = [name for name in daemon.names or () if not name.startswith(_UNIT)]
        if daemon.names is None or foreign_names:
            accepted_names = ", ".join(foreign_names) or "any certificate of its CA"
            yield Finding(
                check="libvirt-trust",
                where=host,
                what=f"tls_allowed_dn_list in {daemon.path} lets in {accepted_names}",
                fix=f"{apply_command(host, 'hypervisor.libvirt')} (pillar "
                "hypervisor:tls_allowed_dn_list)",
            )
    for use, fingerprints in sorted(facts.trusted.items()):
        foreign_fingerprints = sorted(set(fingerprints) - baseline.trusted.get(use, frozenset()))
        if foreign_fingerprints:
            yield Finding(
                check="libvirt-trust",
                where=host,
                what=f"for {use} it trusts a CA that is not this cloud's (SHA-256 "
                f"{foreign_fingerprints[0][:16]}…)",
                fix=f"{apply_command(host, 'hypervisor.keys')}, then look for what it let in",
            )


def _revocations(host: str, facts: HostAudit, baseline: Baseline) -> Iterator[Finding]:
    for use in sorted(facts.trusted):
        revocation = facts.revoked.get(use)
        missing_serials = baseline.listed.get(use, frozenset()).difference(
            revocation.serials if revocation else ()
        )
        reason = None
        if revocation and (end := _parse_time(host, revocation.ends)) <= baseline.now:
            reason = f"{revocation.path} ran out on {end:%Y-%m-%d}: it trusts nobody for {use}"
        elif missing_serials:
            missing_text = (
                "a revoked certificate"
                if len(missing_serials) == 1
                else f"{len(missing_serials)} revoked ones"
            )
            reason = f"for {use} it still takes {missing_text} (serial {min(missing_serials)})"
        if reason:
            yield Finding(check="certificates", where=host, what=reason, fix=_renew_command(host))


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
                f"{apply_command(host, 'hypervisor.libvirt')}",
            )
    yield from _rights(host, conf)


def _rights(host: str, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Yield settings that give a guest that escapes its QEMU more than its own VM."""
    faults = []
    if conf.get("user", "").lstrip("+") in ("root", "0"):
        faults.append("user is root: who breaks out of a QEMU is root on the host")
    if "none" in conf.get("security_driver", "").split(", "):
        faults.append("security_driver is none: who breaks out of a QEMU has the disks of all VMs")
    for fault in faults:
        yield Finding(
            check="qemu-rights",
            where=host,
            what=f"in qemu.conf {fault}",
            fix="take that line out, restart libvirtd (virtqemud), then stop and start the VMs",
        )


def _options(host: str, facts: HostAudit) -> Iterator[Finding]:
    option_places = f"its minion's configuration, grains or pillar, then {_reread_command(host)}"
    if facts.compat:
        yield Finding(
            check="compat",
            where=host,
            what=f"virt:compat is {facts.compat}: displays, and consoles over TCP, of new VMs "
            "listen on all addresses unless a call says where",
            fix=f"take virt:compat out of {option_places}",
        )
    for reason in facts.wrong_options:
        yield Finding(
            check="wrong-options",
            where=host,
            what=f"{reason}; what needs it is refused there",
            fix=f"mend it in {option_places}",
        )


def _reread_command(host: str) -> str:
    return f"salt {shlex.quote(host)} saltutil.refresh_pillar, or restart that minion"


def _parse_time(host: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ImpossibleTime(
            f"{host}'s answer is not understood: it has an impossible time"
        ) from None
    if moment.tzinfo is None:
        raise ImpossibleTime(f"{host}'s answer is not understood: it has a time without a zone")
    return moment


def _certificate(host: str, certificate: CertificateFacts, baseline: Baseline) -> Iterator[Finding]:
    begin, end = _parse_time(host, certificate.not_before), _parse_time(host, certificate.not_after)
    owner = baseline.issued.get(certificate.serial)
    reason, fix = None, _renew_command(host)
    if end <= baseline.now:
        reason = f"ran out on {end:%Y-%m-%d}"
    elif certificate.serial in baseline.revoked:
        reason = "was revoked"
    elif owner is None:
        reason = "is in no record of this master's CAs"
        fix = f"find out who made it; {fix}, and if its CA is not this cloud's, hypervisor.keys"
    elif owner != host:
        reason = f"is that of {owner}"
        fix = f"salt-run virt_pki.revoke {certificate.serial}; {fix}; {_renew_command(owner)}"
    elif (end - baseline.now) * _OVERDUE < end - begin:
        reason = f"runs out on {end:%Y-%m-%d}, and was not renewed in time"
    if reason is not None:
        yield Finding(
            check="certificates",
            where=host,
            what=f"{certificate.path} {reason} (serial {certificate.serial[:40]})",
            fix=fix,
        )


def _key(host: str, key: KeyFacts) -> Iterator[Finding]:
    reader = key.reader if key.mode & 0o070 and key.reader else key.group
    reason = None
    if key.mode & ~key.most & 0o7777:
        reason = f"can be used by others (mode {key.mode:04o})"
    elif key.owner != "root":
        reason = f"belongs to {key.owner}"
    elif key.mode & 0o070 and key.group != reader:
        reason = f"can be read by the group {key.group}"
    if reason is not None:
        is_minion_key = key.path.endswith("minion.pem")
        path = shlex.quote(key.path)
        yield Finding(
            check="host-keys",
            where=host,
            what=f"{key.path} {reason}",
            fix=f"there: chown root {path}; chmod 400 {path}; then give the minion a new key"
            if is_minion_key
            else f"{apply_command(host, 'hypervisor.keys')} makes a new one",
        )
