"""The VMs that a host of the swarm has at first."""

import hashlib
import uuid

from saltvirt.xml import METADATA_NS

from swarmkit import conf
from swarmkit.standin import connection

MEMORY_MIB, DISK_MIB = 512, 8192
# As libvirt says it of a VM of virt.init's defaults, shortened by what nobody reads.
_XML = """<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <metadata>
    <saltvirt:vm xmlns:saltvirt="{ns}" disk_mib="{disk_mib}"/>
  </metadata>
  <memory unit='KiB'>{memory_kib}</memory>
  <currentMemory unit='KiB'>{memory_kib}</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <boot dev='hd'/>
  </os>
  <features>
    <acpi/>
    <apic/>
  </features>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' discard='unmap'/>
      <source file='{disk}'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </disk>
    <controller type='usb' index='0' model='qemu-xhci'/>
    <controller type='pci' index='0' model='pcie-root'/>
    <interface type='bridge'>
      <mac address='{mac}'/>
      <source bridge='br0'/>
      <model type='virtio'/>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </interface>
    <serial type='pty'>
      <target type='isa-serial' port='0'/>
    </serial>
    <console type='pty'>
      <target type='serial' port='0'/>
    </console>
    <memballoon model='virtio'/>
    <rng model='virtio'>
      <backend model='random'>/dev/urandom</backend>
    </rng>
  </devices>
</domain>"""


def _row(host, spec, number):
    """Return ``(xml, whether it runs)`` of a VM; its disk is a file without content."""
    name = f"vm-{host}-{number:03d}"
    disk = f"{name}_system.raw"
    with (conf.HOSTS / host / "img" / disk).open("wb") as handle:
        handle.truncate(DISK_MIB << 20)
    digest = hashlib.sha256(name.encode()).hexdigest()
    text = _XML.format(
        name=name,
        uuid=uuid.uuid5(uuid.NAMESPACE_DNS, name),
        ns=METADATA_NS,
        disk_mib=DISK_MIB,
        memory_kib=MEMORY_MIB * 1024,
        disk=conf.images(host, spec) / disk,
        mac="52:54:00:" + ":".join(digest[at : at + 2] for at in (0, 2, 4)),
    )
    # One of ten is shut down.
    return text, number % 10 != 9


def fill(host, spec):
    """Give a host its VMs."""
    connection.filled(
        conf.HOSTS / host / "libvirt", [_row(host, spec, number) for number in range(spec.vms)]
    )
