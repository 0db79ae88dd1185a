"""Judge access to a host's VMs and their disks: pure functions that yield findings."""

import ipaddress
import shlex
from collections.abc import Iterable, Iterator, Mapping

from saltvirt.checks.audit.auditanswer import DisplayFacts, HostAudit
from saltvirt.core.findings import Finding


def findings(host: str, facts: HostAudit) -> Iterator[Finding]:
    """Yield all findings about access to a host's VMs or their disks."""
    yield from _user_nics(host, facts.user_nics)
    yield from _displays(host, facts)
    yield from _consoles(host, facts)
    yield from _open_disks(host, facts.open_disks)


def _user_nics(host: str, vms: Iterable[str]) -> Iterator[Finding]:
    for vm in vms:
        yield Finding(
            check="user-nics",
            where=host,
            what=f"{vm} has a NIC of type user: the host itself sends what it sends, to its own "
            "loopback too, and no firewall rule for guests holds it back",
            fix=f"give it a NIC on a bridge or a network (virsh edit {shlex.quote(vm)}), then stop "
            "and start it",
        )


def _is_open(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address not in ("", "localhost")


def _is_closed(display: DisplayFacts, conf: Mapping[str, str]) -> bool:
    # TLS without client certificates admits any client.
    has_verification = (
        conf.get("vnc_tls_x509_verify", conf.get("default_tls_x509_verify", "1")) == "1"
    )
    has_tls = display.type == "vnc" and conf.get("vnc_tls") == "1" and has_verification
    # A VM without a password of its own gets the one of qemu.conf.
    has_password = display.has_password or f"{display.type}_password" in conf
    return not _is_open(display.address) or has_password or has_tls


def _displays(host: str, facts: HostAudit) -> Iterator[Finding]:
    for display in facts.displays:
        if not _is_closed(display, facts.qemu):
            yield Finding(
                check="display",
                where=host,
                what=f"the {display.type} display of {display.vm} listens at {display.address}, "
                "without "
                "password and TLS that asks for certificates",
                fix=f"listen on 127.0.0.1 (virsh edit {shlex.quote(display.vm)}; virt:vnc:listen "
                "for "
                "new VMs), or set virt:vnc:password; then stop and start the VM",
            )
    for kind in ("vnc", "spice"):
        address = facts.qemu.get(f"{kind}_listen", "")
        default_display = DisplayFacts(vm="", type=kind, address=address, has_password=False)
        if not _is_closed(default_display, facts.qemu):
            yield Finding(
                check="display",
                where=host,
                what=f"{kind}_listen in qemu.conf is {address}, without password and TLS "
                "that asks for certificates",
                fix=f'{kind}_listen = "127.0.0.1" in qemu.conf, or vnc_tls = 1; restart libvirtd',
            )


def _open_disks(host: str, disks: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    for vm, paths in disks.items():
        for path in paths:
            yield Finding(
                check="disk-files",
                where=host,
                what=f"any user of the host can read {path}, to which {vm} writes",
                fix=f"there: chmod o= {shlex.quote(path)} (libvirt before 11.10 makes external "
                "snapshots of stopped VMs so)",
            )


def _consoles(host: str, facts: HostAudit) -> Iterator[Finding]:
    conf = facts.qemu
    has_verification = (
        conf.get("chardev_tls_x509_verify", conf.get("default_tls_x509_verify", "1")) == "1"
    )
    default = "yes" if conf.get("chardev_tls") == "1" else "no"
    for console in facts.consoles:
        has_tls = has_verification and (console.tls or default) == "yes"
        # A console without an address listens on all addresses.
        if _is_open(console.address or "0.0.0.0") and not has_tls:
            yield Finding(
                check="console",
                where=host,
                what=f"a serial, console or channel of {console.vm} listens at "
                f"{console.address or 'all addresses'}, without TLS that asks for certificates",
                fix=f"listen on 127.0.0.1 (virsh edit {shlex.quote(console.vm)}), then stop and "
                "start "
                "the VM",
            )
