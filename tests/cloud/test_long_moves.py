"""
More than 70 GiB of a busy guest's memory in one move: GnuTLS has renewed an AES connection's keys.

The guest is a boot sector that writes to each page of its memory for ever, so that its move never
ends by itself: it is paused once enough was sent. auto-converge would slow it down, so the moves
are virsh's, with what virt.migrate tells libvirt. SALTVIRT_LONG_GIB makes them shorter.
"""

import os
import time
from pathlib import Path

import pytest
from cloudkit import wait
from saltvirt.xml.domain import tlspriority

pytestmark = pytest.mark.nightly

# More than 2^24 pages of 4 KiB, each of which is a record.
SENT = int(os.environ.get("SALTVIRT_LONG_GIB", "70")) * 2**30
DISK = "/mnt/shared/busy.img"
# It enters protected mode, then increments a byte of each page from 1 to 192 MiB, and prints a dot
# every 64 rounds.
SECTOR = (
    bytes.fromhex(
        "fae4920c02e69231c08ed80f0116647c0f20c00c010f22c0ea1d7c0800b8100000008ed8baf803000031dbbf0000"
        "1000fe0781c70010000081ff0000000c72f043f6c33f75e5b02eeeebe0900000000000000000ffff0000009acf00"
        "ffff00000092cf0017004c7c0000"
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
DOMAIN = f"""
<domain type='qemu'><name>busy</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type></os>
<cpu mode='custom'><model>qemu64</model></cpu>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='{DISK}'/><target dev='hda' bus='ide'/></disk>
<serial type='file'><source path='/var/log/libvirt/qemu/busy.txt'/></serial>
</devices></domain>
"""
WAYS = {
    "two connections": "--parallel --parallel-connections 2",
    "one without AES": "--xml /run/busy.xml",
    "post-copy without AES": "--xml /run/busy.xml --postcopy",
}


@pytest.fixture(params=WAYS)
def move(cloud3, request):
    """A busy guest on hyper1, and the words by which it moves to hyper2."""
    cloud3.purge_all()
    source = cloud3.folder("hyper1")
    (source / DISK.lstrip("/")).write_bytes(SECTOR.ljust(2**20, b"\0"))
    (source / "run/busy-new.xml").write_text(DOMAIN)
    cloud3.sh("hyper1", f"chmod 666 {DISK}; virsh -q create /run/busy-new.xml")
    running = cloud3.sh("hyper1", "virsh dumpxml --migratable --security-info busy")
    (source / "run/busy.xml").write_text(tlspriority.add_variable(running))
    yield WAYS[request.param]
    for host in ("hyper1", "hyper2"):
        cloud3.sh(host, "virsh -q destroy busy || true; rm -f /run/busy*.xml")
    cloud3.sh("hyper1", f"rm {DISK}")


def sent(cloud):
    """Return how many bytes of memory the move has sent; 0 before it begins."""
    said = cloud.sh("hyper1", "virsh domjobinfo busy --rawstats 2>/dev/null || true")
    values = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    return int(values.get("memory_processed", 0))


def dots(cloud, host):
    """Return how often the guest has gone round on a host."""
    path = Path(cloud.folder(host), "var/log/libvirt/qemu/busy.txt")
    return path.stat().st_size if path.exists() else 0


def test_a_move_goes_on_after_the_keys_would_be_renewed(cloud3, move):
    wait("the guest", lambda: dots(cloud3, "hyper1") > 2)
    cloud3.sh(
        "hyper1",
        "sh -c 'virsh migrate --live --p2p --tls --unsafe --migrateuri tcp://hyper2 "
        f"{move} busy qemu+tls://hyper2/system >/run/busy.out 2>&1; echo $? >>/run/busy.out' "
        "</dev/null >/dev/null 2>&1 &",
    )
    begun, out = time.monotonic(), cloud3.folder("hyper1") / "run/busy.out"
    while (now := sent(cloud3)) < SENT:
        assert not out.exists() or not out.read_text(), out.read_text()
        time.sleep(1)
    took_s = time.monotonic() - begun
    print(f"{now / 2**30:.1f} GiB in {took_s:.0f} s: {now / 2**20 / took_s:.0f} MiB/s")

    if "postcopy" in move:
        cloud3.sh("hyper1", "virsh -q migrate-postcopy busy")
    else:
        cloud3.sh("hyper1", "virsh -q suspend busy")
    wait("its end", lambda: out.read_text().strip().endswith("0"))
    cloud3.sh("hyper2", "virsh -q resume busy || true")

    assert "running" in cloud3.sh("hyper2", "virsh domstate busy")
    wait("the guest there", lambda: dots(cloud3, "hyper2") > 2)
