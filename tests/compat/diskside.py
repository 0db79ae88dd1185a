"""
One side of the comparison of disks: what virt.init makes of them, and what the definition says.

It takes a job as JSON from standard input: ``folder`` is this side's own, ``ours`` the checkout or
None, ``cases`` are ``{VM: {disk, pool, there}}``: a disk of the call, the type of the pool ``p``
that it names, and which volume or file is there already. It prints ``{VM: outcome}``.

3006's ``virt.init`` refuses the test driver's own type of domain when it makes disks, so the three
functions are called that it calls: ``_disk_profile``, ``_disk_volume_create`` or
``_qemu_image_create``, and ``_gen_xml``.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

import libvirt  # noqa: E402
import salt.config  # noqa: E402
import salt.loader  # noqa: E402

AUTH = "<auth type='ceph' username='u'><secret usage='pool_p'/></auth>"
SOURCES = {
    "dir": "",
    "logical": "<name>vg</name><format type='lvm2'/>",
    "disk": "<device path='/dev/sda'/><format type='gpt'/>",
    "zfs": "<name>tank</name>",
    "iscsi": "<host name='san'/><device path='iqn.2013-06.com.example:x'/>",
    "scsi": "<adapter name='host0'/>",
    "mpath": "",
    "rbd": f"<host name='mon' port='6789'/><name>vms</name>{AUTH}",
    "gluster": "<host name='g1'/><dir path='/'/><name>vol</name>",
}
TARGETLESS = ("rbd", "gluster")
# What QEMU's driver says, and the test driver does not.
CAPABILITIES = """
<storagepoolCapabilities>
  <pool type="dir" supported="yes"><volOptions><defaultFormat type="raw"/>
    <enum name="targetFormatType"><value>raw</value><value>qcow2</value></enum>
  </volOptions></pool>
  <pool type="logical" supported="yes"/>
  <pool type="disk" supported="yes"><volOptions><defaultFormat type="none"/>
    <enum name="targetFormatType"><value>none</value><value>linux</value></enum>
  </volOptions></pool>
  <pool type="rbd" supported="yes"><volOptions><defaultFormat type="raw"/>
    <enum name="targetFormatType"/></volOptions></pool>
</storagepoolCapabilities>
"""


def pool_of(conn, folder, kind):
    """Make the pool ``p``."""
    target = f"<target><path>{folder}/pool</path></target>"
    pool = conn.storagePoolDefineXML(
        f"<pool type='{kind}'><name>p</name><source>{SOURCES[kind]}</source>"
        f"{'' if kind in TARGETLESS else target}</pool>"
    )
    pool.create()
    return pool


def theirs(folder):
    """Return a function that makes a VM's disk as 3006's virt.init does."""
    opts = salt.config.minion_config(None)
    opts.update(root_dir=folder, cachedir=f"{folder}/cache", file_client="local", grains={})
    opts["virt"] = {"connection": {"uri": "test:///default"}, "images": f"{folder}/images"}
    loaded = salt.loader.minion_mods(opts)
    assert loaded["virt.list_domains"]() is not None
    virt = sys.modules[loaded["virt.init"].__module__]
    # They are only there while a function of the module is called by the loader.
    virt.__salt__, virt.__opts__, virt.__grains__ = loaded, opts, {}

    def make(conn, name, disk):
        (said,) = virt._disk_profile(conn, None, "qemu", [dict(disk)], name)
        if disk.get("device") != "cdrom":
            if not said.get("source_file"):
                virt._disk_volume_create(conn, said)
            elif not os.path.exists(said["source_file"]):
                virt._qemu_image_create(said)
        text = virt._gen_xml(conn, name, 1, 64, [said], [], "qemu", "hvm", "i686")
        # The test driver takes no other type, and has no emulator.
        root = ElementTree.fromstring(text)
        root.set("type", "test")
        domain = conn.defineXML(ElementTree.tostring(root, encoding="unicode"))
        return domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)

    return make


def ours(folder):
    """Return a function that makes a VM's disk as our virt.init does."""
    from saltvirt.core.options.config import HostSettings
    from saltvirt.core.salt.context import Context
    from saltvirt.libvirt.domains import query
    from saltvirt.placement.answers import DomainTypes
    from saltvirt.vm import spec
    from saltvirt.vm.create.host import create
    from saltvirt.vm.show.host import inspect

    # What the test driver has no answer for.
    inspect.domain_types = lambda *_: DomainTypes(default="test", usable=["test"], why="")
    query.node = lambda _conn: {"phymemory": 16384, "cpus": 4}
    inspect.hostfacts.free_memory_mib = lambda _conn: 4096
    settings = HostSettings(
        uri="test:///default",
        images=f"{folder}/images",
        state_dir=f"{folder}/state",
        nic={"default": []},
        reserve_mib=0,
        disk_reserve_mib=0,
        console_log=False,
    )

    def make(conn, name, disk):
        call = {"disk": None, "disks": [disk], "start": False}
        create.create(
            Context(settings=settings, opts={}), spec.deployment(settings, name, 1, 64, call)
        )
        return conn.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)

    return make


def outcome(conn, folder, make, name, case):
    """Return what becomes of one case."""
    pool = pool_of(conn, folder, case["pool"]) if case["pool"] else None
    is_file = case["pool"] in (None, "dir")
    path = Path(folder, "images" if pool is None else "pool", case["there"] or "none")
    _put(pool, path, case["there"], is_file)
    before = _digest(path)
    try:
        out = _said(ElementTree.fromstring(make(conn, name, case["disk"])))
    except Exception as error:
        out = {"error": f"{type(error).__name__}: {error}"}
    if path.exists():
        out["kept"] = _digest(path) == before
    files = (one.name for one in path.parent.iterdir()) if is_file else ()
    out["files"] = sorted(one for one in files if one != "base")
    if pool is not None and not is_file:
        out["volumes"] = sorted(pool.listVolumes())
    _clear(conn, path.parent, pool)
    return out


def _put(pool, path, name, is_file):
    """Have a file, or a volume, there already."""
    if name and is_file:
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "8M"], check=True)
    if name and pool is not None:
        pool.createXML(f"<volume><name>{name}</name><capacity>8388608</capacity></volume>")


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _said(root):
    """Return what a definition says of its disk."""
    disk = root.find("devices/disk")
    source, secret = disk.find("source"), disk.find("source/auth/secret")
    return {
        "type": disk.get("type"),
        "source": dict(source.attrib),
        "hosts": [dict(one.attrib) for one in source.iterfind("host")],
        "secret": None if secret is None else dict(secret.attrib),
        "format": disk.find("driver").get("type"),
        "target": disk.find("target").attrib,
    }


def _clear(conn, folder, pool):
    for domain in conn.listAllDomains():
        if domain.isActive():
            domain.destroy()
        domain.undefine()
    for one in [one for one in folder.iterdir() if one.is_file()]:
        one.unlink()
    if pool is not None:
        for volume in pool.listAllVolumes():
            volume.delete()
        pool.destroy()
        pool.undefine()


def main():
    """Do the job of standard input."""
    job = json.load(sys.stdin)
    # What modules print is not the answer.
    out, sys.stdout = sys.stdout, sys.stderr
    folder = job["folder"]
    for name in ("images", "pool", "state", "cache"):
        Path(folder, name).mkdir()
    conn = libvirt.open("test:///default")
    libvirt.virConnect.getStoragePoolCapabilities = lambda self, flags=0: CAPABILITIES
    libvirt.virConnect.close = lambda self: 0
    libvirt.open = libvirt.openReadOnly = lambda *_given: conn
    libvirt.openAuth = lambda *_given: conn
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    make = (ours if job["ours"] else theirs)(folder)
    found = {name: outcome(conn, folder, make, name, case) for name, case in job["cases"].items()}
    json.dump(found, out)


main()
