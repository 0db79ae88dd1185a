"""Judge access to a host's VMs, their disks and its images: pure functions."""

import ipaddress
import shlex
from collections.abc import Iterator, Mapping

from saltvirt.checks.audit.auditanswer import DisplayFacts, HostAudit
from saltvirt.checks.audit.master.auditcloud import AuditCloud, AuditHost
from saltvirt.checks.engine import Checks
from saltvirt.core.findings import Finding

CHECKS: Checks[AuditCloud, HostAudit] = Checks()


@CHECKS.host("user-nics")
def _user_nics(host: AuditHost) -> Iterator[Finding]:
    for vm in host.facts.user_nics:
        yield Finding(
            f"{vm} has a NIC of type user: the host itself sends what the VM sends, also to its "
            "own loopback, and no firewall rule for guests holds it back",
            f"give it a NIC on a bridge or a network (virsh edit {shlex.quote(vm)}), then stop "
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


@CHECKS.host("display")
def _displays(host: AuditHost) -> Iterator[Finding]:
    conf = host.facts.qemu
    for display in host.facts.displays:
        if not _is_closed(display, conf):
            yield Finding(
                f"the {display.type} display of {display.vm} listens at {display.address}, without "
                "password and TLS that asks for certificates",
                f"listen on 127.0.0.1 (virsh edit {shlex.quote(display.vm)}; virt:vnc:listen for "
                "new VMs), or set virt:vnc:password; then stop and start the VM",
            )
    for kind in ("vnc", "spice"):
        address = conf.get(f"{kind}_listen", "")
        if not _is_closed(
            DisplayFacts(vm="", type=kind, address=address, has_password=False), conf
        ):
            yield Finding(
                f"{kind}_listen in qemu.conf is {address}, without password and TLS "
                "that asks for certificates",
                f'{kind}_listen = "127.0.0.1" in qemu.conf, or vnc_tls = 1; restart libvirtd',
            )


@CHECKS.host("console")
def _consoles(host: AuditHost) -> Iterator[Finding]:
    conf = host.facts.qemu
    has_verification = (
        conf.get("chardev_tls_x509_verify", conf.get("default_tls_x509_verify", "1")) == "1"
    )
    default = "yes" if conf.get("chardev_tls") == "1" else "no"
    for console in host.facts.consoles:
        has_tls = has_verification and (console.tls or default) == "yes"
        # A console without an address listens on all addresses.
        if _is_open(console.address or "0.0.0.0") and not has_tls:
            yield Finding(
                f"a serial, console or channel of {console.vm} listens at "
                f"{console.address or 'all addresses'}, without TLS that asks for certificates",
                f"listen on 127.0.0.1 (virsh edit {shlex.quote(console.vm)}), then stop and start "
                "the VM",
            )


@CHECKS.host("disk-files")
def _open_disks(host: AuditHost) -> Iterator[Finding]:
    for vm, paths in host.facts.open_disks.items():
        for path in paths:
            yield Finding(
                f"any user of the host can read {path}, to which {vm} writes",
                f"there: chmod o= {shlex.quote(path)} (libvirt before 11.10 makes external "
                "snapshots of stopped VMs so)",
            )


@CHECKS.host("linked-images")
def _linked_images(host: AuditHost) -> Iterator[Finding]:
    for path, linked_path in (pair for pair in host.facts.linked_images if len(pair) == 2):
        name, copy = shlex.quote(linked_path), shlex.quote(f"{linked_path}.new")
        find_command = f"find / -xdev -samefile {shlex.quote(path)}"
        yield Finding(
            f"{linked_path or 'another name'} is a hard link of {path}: what writes to it changes "
            "every disk that is based on that image",
            f"there: cp -p --reflink=auto {name} {copy} && mv {copy} {name}"
            if linked_path
            else f"there: {find_command}; replace each other name by a copy",
        )
