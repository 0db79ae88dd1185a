"""Judge hosts' answers: pure functions that yield findings."""

import shlex
from collections.abc import Iterator
from datetime import datetime

from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.audit.master import releases
from saltvirt.checks.audit.master.auditcloud import FUN, AuditCloud, AuditHost
from saltvirt.checks.engine import Checks, unreadable
from saltvirt.core.findings import Finding

# The beginning of this cloud's certificate subjects; see saltvirt.ca.ca.subject.
_UNIT = "OU=salt-virt hypervisor"
# A host renews a certificate with a third of its life left; with a quarter left it is overdue.
_OVERDUE = 4

CHECKS: Checks[AuditCloud, HostAudit] = Checks()


@CHECKS.host("libvirt-open")
def _open_ports(host: AuditHost) -> Iterator[Finding]:
    for address in host.facts.plain:
        yield Finding(
            f"something listens at {address} on libvirt's port without TLS",
            f"salt {host.quoted} service.disable libvirtd-tcp.socket, then service.stop; "
            "on modular hosts virtproxyd-tcp.socket",
        )
    for daemon in host.facts.daemons:
        if not daemon.verifies:
            yield Finding(
                f"tls_no_verify_certificate in {daemon.path}: any client that reaches it is root",
                f"take it out, then restart the daemon: {host.apply('hypervisor.libvirt')}",
            )
    for path in host.facts.local.sockets:
        yield Finding(
            f"auth_unix_rw is none in {path}, and any user may use its socket",
            'unix_sock_rw_perms = "0770" there (SocketMode=0660 of its socket unit)',
        )


@CHECKS.host("firewall")
def _forwarding(host: AuditHost) -> Iterator[Finding]:
    for name in host.facts.unguarded:
        yield Finding(
            f"beside the rules {name} of its firewall no rule holds back what it forwards: its "
            "guests on a NAT network reach libvirt and QEMU of the other hypervisors",
            f"salt {host.quoted} pkg.install nftables, then {host.apply('hypervisor.firewall')}",
        )
    for name in host.facts.outdated:
        yield Finding(
            f"the rules {name} of its firewall let guests with NAT through to libvirt and QEMU of "
            "the other hypervisors",
            f"{host.apply('hypervisor.firewall')}, or the state that sets them",
        )


@CHECKS.host("libvirt-users")
def _local_users(host: AuditHost) -> Iterator[Finding]:
    for user in host.facts.local.users:
        yield Finding(
            f"{user} is in the group libvirt, and so as good as root",
            f"there: gpasswd -d {shlex.quote(user)} libvirt; or make it an administrator",
        )
    for path in host.facts.local.rules:
        yield Finding(
            f"{path} lets users without a password use libvirt, which makes them as good as root",
            f"look at it there: cat {shlex.quote(path)}; take that rule out",
        )


@CHECKS.host("libvirt-trust")
def _trust(host: AuditHost) -> Iterator[Finding]:
    for daemon in host.facts.daemons:
        foreign_names = [name for name in daemon.names or () if not name.startswith(_UNIT)]
        if daemon.names is None or foreign_names:
            accepted_names = ", ".join(foreign_names) or "any certificate of its CA"
            yield Finding(
                f"tls_allowed_dn_list in {daemon.path} lets in {accepted_names}",
                f"{host.apply('hypervisor.libvirt')} (pillar hypervisor:tls_allowed_dn_list)",
            )
    for use, fingerprints in sorted(host.facts.trusted.items()):
        own_fingerprints = host.cloud.master.trusted_cas.get(use, frozenset())
        foreign_fingerprints = sorted(set(fingerprints) - own_fingerprints)
        if foreign_fingerprints:
            yield Finding(
                f"for {use} it trusts a CA that is not this cloud's (SHA-256 "
                f"{foreign_fingerprints[0][:16]}…)",
                f"{host.apply('hypervisor.keys')}, then look for what it let in",
            )


def _renew_command(host: str) -> str:
    return f"salt-run virt_pki.renew {shlex.quote(host)}"


@CHECKS.host("certificates")
def _revocations(host: AuditHost) -> Iterator[Finding]:
    master = host.cloud.master
    for use in sorted(host.facts.trusted):
        revocation = host.facts.revoked.get(use)
        missing_serials = master.listed_serials.get(use, frozenset()).difference(
            revocation.serials if revocation else ()
        )
        reason = None
        if revocation and (end := datetime.fromisoformat(revocation.ends)) <= master.now:
            reason = f"{revocation.path} ran out on {end:%Y-%m-%d}: it trusts no peer for {use}"
        elif missing_serials:
            count = len(missing_serials)
            missing_text = "a revoked certificate" if count == 1 else f"{count} revoked ones"
            reason = f"for {use} it still takes {missing_text} (serial {min(missing_serials)})"
        if reason:
            yield Finding(reason, _renew_command(host.name))


@CHECKS.host("certificates")
def _certificates(host: AuditHost) -> Iterator[Finding]:
    master, renew_command = host.cloud.master, _renew_command(host.name)
    for certificate in host.facts.certificates:
        begin = datetime.fromisoformat(certificate.not_before)
        end = datetime.fromisoformat(certificate.not_after)
        owner = master.issued.get(certificate.serial)
        reason, fix = None, renew_command
        if end <= master.now:
            reason = f"ran out on {end:%Y-%m-%d}"
        elif certificate.serial in master.revoked:
            reason = "was revoked"
        elif owner is None:
            reason = "is in no record of this master's CAs"
            fix = f"find out who made it; {fix}, and if its CA is not this cloud's, hypervisor.keys"
        elif owner != host.name:
            reason = f"is that of {owner}"
            fix = f"salt-run virt_pki.revoke {certificate.serial}; {fix}; {_renew_command(owner)}"
        elif (end - master.now) * _OVERDUE < end - begin:
            reason = f"runs out on {end:%Y-%m-%d}, and was not renewed in time"
        if reason is not None:
            yield Finding(f"{certificate.path} {reason} (serial {certificate.serial[:40]})", fix)


@CHECKS.host("host-keys")
def _keys(host: AuditHost) -> Iterator[Finding]:
    for key in host.facts.keys:
        reader = key.reader if key.mode & 0o070 and key.reader else key.group
        reason = None
        if key.mode & ~key.most & 0o7777:
            reason = f"can be used by others (mode {key.mode:04o})"
        elif key.owner != "root":
            reason = f"belongs to {key.owner}"
        elif key.mode & 0o070 and key.group != reader:
            reason = f"can be read by the group {key.group}"
        if reason is not None:
            path = shlex.quote(key.path)
            yield Finding(
                f"{key.path} {reason}",
                f"there: chown root {path}; chmod 400 {path}; then give the minion a new key"
                if key.path.endswith("minion.pem")
                else f"{host.apply('hypervisor.keys')} makes a new one",
            )


@CHECKS.host("qemu-tls")
def _qemu(host: AuditHost) -> Iterator[Finding]:
    conf = host.facts.qemu
    default = conf.get("default_tls_x509_verify", "1")
    # Settings that must be on, whether each is, and the consequence where it is off.
    for key, value, consequence in (
        ("migrate_tls_force", "0", "migrations need no TLS"),
        ("migrate_tls_x509_verify", default, "any client of its ports can send it a VM"),
        ("backup_tls_x509_verify", default, "any client of its NBD ports can read disks"),
    ):
        if conf.get(key, value) != "1":
            yield Finding(
                f"{key} is off in qemu.conf: {consequence}",
                f"if pillar hypervisor:qemu_conf has it, take it out; then "
                f"{host.apply('hypervisor.libvirt')}",
            )


@CHECKS.host("qemu-rights")
def _rights(host: AuditHost) -> Iterator[Finding]:
    """Yield settings that give a guest that escapes its QEMU more than its own VM."""
    conf, faults = host.facts.qemu, []
    if conf.get("user", "").lstrip("+") in ("root", "0"):
        faults.append("user is root: a guest that breaks out of its QEMU is root on the host")
    if "none" in conf.get("security_driver", "").split(", "):
        faults.append(
            "security_driver is none: a guest that breaks out of its QEMU has the disks of all VMs"
        )
    for fault in faults:
        yield Finding(
            f"in qemu.conf {fault}",
            "take that line out, restart libvirtd (virtqemud), then stop and start the VMs",
        )


@CHECKS.host("wrong-options", "compat")
def _options(host: AuditHost) -> Iterator[Finding]:
    option_places = (
        "its minion's configuration, grains or pillar, then "
        f"salt {host.quoted} saltutil.refresh_pillar, or restart that minion"
    )
    if host.facts.compat:
        yield Finding(
            f"virt:compat is {host.facts.compat}: displays, and consoles over TCP, of new VMs "
            "listen on all addresses unless a call names one",
            f"take virt:compat out of {option_places}",
            check="compat",
        )
    for reason in host.facts.wrong_options:
        yield Finding(f"{reason}; what needs it is refused there", f"mend it in {option_places}")


@CHECKS.host("libvirt-release", "qemu-release", "filter-window")
def _releases(host: AuditHost) -> Iterator[Finding]:
    if host.facts.release is not None:
        yield from releases.findings(host.name, host.facts.release)
        yield from releases.filters(host.facts.release, host.facts.filtered)


@CHECKS.host("code")
def _code(host: AuditHost) -> Iterator[Finding]:
    if host.facts.code != host.cloud.master.code:
        yield Finding("its code is not that of this master", host.sync())


@CHECKS.host("not-checked")
def _unreadable(host: AuditHost) -> Iterator[Finding]:
    yield from unreadable(host.name, host.facts.unreadable, FUN)
