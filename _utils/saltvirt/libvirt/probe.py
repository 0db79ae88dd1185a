"""
Probe whether KVM guests really run on this host, and read what guests libvirt can run.

A device node proves nothing: on some machines ``/dev/kvm`` opens, answers and even makes VMs, but
ordinary guests hang. So the probe runs a guest: a boot sector that enters protected mode, as all
boot loaders do, and switches the machine off. If the guest still runs after some seconds, KVM is
not usable here. If no such guest starts, the result is unknown.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, locks
from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import value_or
from saltvirt.xml.node import domaincaps, hostcaps

# The boot sector (16 bytes a line): enter protected mode (lgdt, CR0.PE, far jump), return from a
# faked interrupt by iret, then power the machine off (word 0x2000 to ACPI port 0x604, where SeaBIOS
# puts it on "pc" and on "q35"); the descriptor table follows. The iret is the point: KVM on
# machines where ordinary guests hang stops there with "emulation failure".
_CODE = bytes.fromhex(
    "fa31c08ed80f0116587c0f20c00c010f"
    "22c0ea177c080066b810008ed88ed0bc"
    "007000009c6a08682d7c0000cf66ba04"
    "0666b8002066eff4ebfd8db600000000"
    "0000000000000000ffff0000009bcf00"
    "ffff00000093cf001700407c0000"
)
BOOT_SECTOR = _CODE + bytes(510 - len(_CODE)) + b"\x55\xaa"
_TIMEOUT_S = 5
# Machine types that the boot sector can switch off; the first one that the host's QEMU has is used.
# Newer enterprise releases lack "pc" (i440FX).
MACHINES = ("pc", "q35")
# SeaBIOS does not boot from a virtio disk of one sector.
_DISK_BYTES = 1 << 20
_DOMAIN = """
<domain type='{kind}'><name>salt-virt-kvm-probe</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
 <os><type arch='{arch}' machine='{machine}'>hvm</type><boot dev='hd'/></os>
 <features><acpi/></features>
 <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
 <devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
  <source file='{disk}'/><target dev='vda' bus='virtio'/></disk>
  <controller type='usb' model='none'/><memballoon model='none'/></devices></domain>
"""


def kvm(conn: Any, capabilities: Mapping[str, Any], run_dir: str | Path) -> dict[str, Any]:
    """
    Return ``{"usable": bool or None, "why": str}``; None if no test guest could run.

    The probe runs once per boot and QEMU version; a probe without a result is repeated.

    capabilities
        The result of :func:`saltvirt.libvirt.hostfacts.capabilities`.
    run_dir
        A folder that is emptied at boot, for the result and the lock.
    """
    arch = capabilities["arch"]
    offers = [
        guest
        for guest in capabilities["guests"]
        if "kvm" in guest["domain_types"] and guest["arch"] == arch
    ]
    if not offers:
        return {"usable": False, "why": "libvirt offers no KVM guests on this host"}
    if arch not in ("x86_64", "i686"):
        return {"usable": True, "why": f"libvirt offers KVM guests; they are not probed on {arch}"}
    machine = machine_for(offers[0]["machines"])
    if machine is None:
        return {
            "usable": None,
            "why": "KVM is not proved: the test guest needs machine type "
            f"{' or '.join(MACHINES)}, and QEMU has none of them here",
        }
    return _probe_once(conn, arch, machine, Path(run_dir))


def machine_for(machines: Collection[str]) -> str | None:
    """Return a QEMU's machine type for the test guest; None if it has none."""
    return next((name for name in MACHINES if name in machines), None)


def boot_disk() -> bytes:
    """Return the content of the test guest's disk."""
    return BOOT_SECTOR.ljust(_DISK_BYTES, b"\0")


def _probe_once(conn: Any, arch: str, machine: str, run_dir: Path) -> dict[str, Any]:
    run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    result = run_dir / "kvm-probe.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    key = f"{boot_id} {conn.getVersion()} {machine}"
    # The lock is private: a user who may read a lock file can hold the lock for ever.
    with locks.hold_lock(run_dir / "probe.lock"):
        if result.exists():
            record = json.loads(result.read_text())
            if record["key"] == key:
                known_answer: dict[str, Any] = record["answer"]
                return known_answer
        answer = attempt(conn, "kvm", arch, machine)
        if answer["usable"] is not None:
            result.write_text(json.dumps({"key": key, "answer": answer}))
        return answer


def attempt(conn: Any, kind: str, arch: str, machine: str) -> dict[str, Any]:
    """Run the test guest; return ``{"usable", "why"}``. ``kind`` is ``kvm`` except in tests."""
    with tempfile.TemporaryDirectory(prefix="salt-virt-kvm-") as folder:
        Path(folder).chmod(0o755)
        disk = Path(folder) / "boot-sector.raw"
        disk.write_bytes(boot_disk())
        xml = _DOMAIN.format(kind=kind, arch=arch, machine=machine, disk=disk)
        flags = libvirt.VIR_DOMAIN_START_AUTODESTROY
        try:
            dom = conn.createXML(xml, flags)
        except libvirt.libvirtError as exc:
            return {
                "usable": None,
                "why": "KVM is not proved: a test guest (machine type "
                f"{machine}) does not start: {exc}",
            }
        return _outcome(dom, machine)


def _outcome(dom: Any, machine: str) -> dict[str, Any]:
    """Return the answer of a test guest, once it has ended or its time is over."""
    if value_or(True, lambda: _wait(dom), "NO_DOMAIN"):
        return {
            "usable": True,
            "why": f"a KVM test guest (machine type {machine}) ran and switched itself off",
        }
    with contextlib.suppress(libvirt.libvirtError):
        dom.destroy()
    return {
        "usable": False,
        "why": f"/dev/kvm opens, but a KVM test guest (machine type {machine}) hangs in it",
    }


def _wait(dom: Any) -> bool:
    """Return whether a guest ends by itself in time."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        if not dom.isActive():
            return True
        if dom.state()[0] in (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_CRASHED):
            return False
        time.sleep(0.05)
    return False


def read_host_capabilities(conn: Any) -> dict[str, Any]:
    """Return the host's capabilities; see :func:`saltvirt.xml.node.hostcaps.read`."""
    return hostcaps.read(conn.getCapabilities())


def read_domain_capabilities(
    conn: Any, emulator: str | None, arch: str | None, machine: str | None, domain: str | None
) -> dict[str, Any]:
    """
    Return the capabilities of one kind of guest; None for an argument is libvirt's default.

    Raises BadArgument for an emulator that libvirt does not list: libvirt would run that program
    with rights that a caller with read-only access lacks.
    """
    if emulator is not None:
        _refuse_unlisted(conn, arguments.text("emulator", emulator))
    return domaincaps.read(conn.getDomainCapabilities(emulator, arch, machine, domain, 0))


def _refuse_unlisted(conn: Any, emulator: str) -> None:
    archs = [guest["arch"] for guest in read_host_capabilities(conn)["guests"]]
    kinds = [*archs, *(kind for arch in archs for kind in arch["domains"].values())]
    emulators = sorted({kind["emulator"] for kind in kinds if kind.get("emulator")})
    if emulator not in emulators:
        raise BadArgument(
            "emulator",
            f"{arguments.repr_without_secrets(emulator)} is none that libvirt lists on this host; "
            f"listed: {', '.join(emulators) or 'none'}",
        )


def read_all_capabilities(conn: Any) -> dict[str, Any]:
    """Return ``{host, domains}``: the host's capabilities, and those of each kind of guest."""
    host_capabilities = read_host_capabilities(conn)
    archs = [guest["arch"] for guest in host_capabilities["guests"]]
    kinds = [
        (arch.get("emulator"), arch["name"], kind) for arch in archs for kind in arch["domains"]
    ]
    return {
        "host": host_capabilities,
        "domains": [
            read_domain_capabilities(conn, emulator, arch, None, kind)
            for emulator, arch, kind in kinds
        ],
    }


def baseline(conn: Any, *, is_full: bool, is_migratable: bool) -> str:
    """Return the XML of the CPU that all hosts like this one can give a guest."""
    host_cpu = hostfacts.own_cpu(conn)
    if host_cpu is None:
        raise LibvirtRefused("libvirt does not describe this host's CPU, so there is no baseline")
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES if is_full else 0
    if is_migratable:
        flags |= libvirt.VIR_CONNECT_BASELINE_CPU_MIGRATABLE
    cpu_xml: str = conn.baselineCPU([host_cpu], flags)
    return cpu_xml
