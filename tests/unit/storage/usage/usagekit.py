"""A host on libvirt's test driver, in whose image folder there is one file."""

import gc
import subprocess
from pathlib import Path
from types import SimpleNamespace
from uuid import NAMESPACE_DNS, uuid5

import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect

VM = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid>
<memory unit='MiB'>64</memory><os><type>hvm</type>
{boot}</os><devices><disk type='{kind}' device='disk'><driver name='qemu' type='{format}'/>
<source {source}/><target dev='vda'/></disk></devices></domain>"""


def disk_image(path, base=None):
    """Make a qcow2 file, over another file if that is given."""
    argv = ["qemu-img", "create", "-q", "-f", "qcow2"]
    argv += ["-F", "qcow2", "-b", str(base)] if base else []
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*argv, str(path), "1M"], check=True)
    return path


@pytest.fixture
def host(tmp_path):
    """The host: ``conn``, ``settings``, ``file``, and ``define``, which defines a VM."""
    gc.collect(1)
    images = tmp_path / "images"
    settings = HostSettings(
        uri="test:///default", images=str(images), state_dir=str(tmp_path / "state")
    )

    def define(name, path, kind="file", format="qcow2", boot=""):
        sources = {"file": f"file='{path}'", "volume": "pool='{}' volume='{}'"}
        source = sources[kind].format(*str(path).split("/"))
        uuid = uuid5(NAMESPACE_DNS, name)
        text = VM.format(name=name, uuid=uuid, kind=kind, format=format, source=source, boot=boot)
        return conn.defineXML(text)

    with connect.open_connection(settings, readonly=False) as conn:
        known = set(conn.listDefinedDomains())
        yield SimpleNamespace(
            conn=conn,
            settings=settings,
            root=tmp_path,
            images=images,
            file=disk_image(images / "base.qcow2"),
            define=define,
        )
        for name in set(conn.listDefinedDomains()) - known:
            flags = libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            conn.lookupByName(name).undefineFlags(flags | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        for pool in conn.listAllStoragePools():
            for volume in pool.listAllVolumes() if pool.isActive() else ():
                volume.delete()


def trash_place(path):
    """Return where another host's trash has a file that was at a path."""
    return Path(path).parent / ".salt-virt-trash" / "db1-00000000" / Path(path).name
