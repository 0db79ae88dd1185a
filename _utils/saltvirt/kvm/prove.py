"""
Prove that KVM guests really run on this host.

A device node is no proof: there are machines where ``/dev/kvm`` opens, answers and even
makes VMs, and ordinary guests hang in it. So a guest is run: a boot sector that goes the
way of every boot loader into protected mode, and switches the machine off. If it is still
there after some seconds, KVM is not usable here.
"""

import contextlib
import fcntl
import json
import tempfile
import time
from pathlib import Path

from saltvirt.kvm.connect import libvirt

# The boot sector (16 bytes a line): enter protected mode (lgdt, CR0.PE, far jump), come back
# from a made-up interrupt with iret, then power QEMU's "pc" machine off (word 0x2000 to ACPI
# port 0x604); behind it the descriptor table. The iret is the point: KVM on machines where
# ordinary guests hang stops there with "emulation failure".
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
_DOMAIN = """
<domain type='kvm'><name>salt-virt-kvm-proof</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
 <os><type arch='{arch}' machine='pc'>hvm</type><boot dev='hd'/></os><features><acpi/></features>
 <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
 <devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
  <source file='{disk}'/><target dev='hda' bus='ide'/></disk></devices></domain>
"""


def kvm(conn, capabilities, run_dir):
    """
    Return ``{"usable": bool, "why": str}``; the proof is made once per boot and QEMU version.

    capabilities
        What :func:`saltvirt.kvm.host.capabilities` returned.
    run_dir
        A folder that is emptied at boot, for the result and the lock.
    """
    arch = capabilities["arch"]
    offers = any(
        "kvm" in guest["domain_types"] and guest["arch"] == arch
        for guest in capabilities["guests"]
    )
    if not offers:
        return {"usable": False, "why": "libvirt offers no KVM guests on this host"}
    if arch not in ("x86_64", "i686"):
        return {"usable": True, "why": f"libvirt offers KVM guests; no proof is made on {arch}"}
    return _remembered(conn, arch, Path(run_dir))


def _remembered(conn, arch, run_dir):
    run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    result = run_dir / "kvm-proof.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    key = f"{boot_id} {conn.getVersion()}"
    with (run_dir / "kvm-proof.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if result.exists():
            known = json.loads(result.read_text())
            if known["key"] == key:
                return known["answer"]
        answer = _try(conn, arch)
        result.write_text(json.dumps({"key": key, "answer": answer}))
        return answer


def _try(conn, arch):
    with tempfile.TemporaryDirectory(prefix="salt-virt-kvm-") as folder:
        Path(folder).chmod(0o755)
        disk = Path(folder) / "boot-sector.raw"
        disk.write_bytes(BOOT_SECTOR)
        xml = _DOMAIN.format(arch=arch, disk=disk)
        flags = libvirt.VIR_DOMAIN_START_AUTODESTROY
        try:
            dom = conn.createXML(xml, flags)
        except libvirt.libvirtError as exc:
            return {"usable": False, "why": f"a KVM test guest does not start: {exc}"}
        return _wait(dom)


def _wait(dom):
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            if not dom.isActive():
                return {"usable": True, "why": "a KVM test guest ran and switched itself off"}
            if dom.state()[0] in (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_CRASHED):
                break
            time.sleep(0.05)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return {"usable": True, "why": "a KVM test guest ran and switched itself off"}
        raise
    with contextlib.suppress(libvirt.libvirtError):
        dom.destroy()
    return {"usable": False, "why": "/dev/kvm opens, but a KVM test guest hangs in it"}
