"""A host that died: the report of what is left of its VMs is what the page shows."""

import pageoutputs
import pytest
from cloudkit import TINY

PAGE = "host-lost.md"
SHARE = "mkdir -p /srv/shared; mount --bind /mnt/shared /srv/shared"
FORGET = """
virsh -q pool-destroy shared || true
umount /srv/shared || true
rm -rf /srv/shared /mnt/shared/*_* /mnt/shared/.salt-virt-*
"""
POOL = "virsh -q pool-create-as shared dir --target /srv/shared"


@pytest.fixture
def shared(clean):
    """Two VMs on the third host; one of them has its disk on storage that all hosts share."""
    for host in clean.hosts:
        clean.sh(host, f"{SHARE}; {POOL}")
    local = ("virt.init", "db1", "4", "2048", TINY, "seed=False")
    assert clean.local("hyper3", *local) is True
    disks = f"disks=[{{name: system, image: '{TINY}', pool: shared}}]"
    assert clean.local("hyper3", "virt.init", "web1", "2", "2048", disks, "seed=False") is True
    yield clean
    clean.ready()
    clean.purge_all()
    for host in clean.hosts:
        clean.sh(host, FORGET)


def test_the_report_is_what_the_page_shows(shared, request):
    assert "db1" in shared.command("salt-run", "virt.list").out
    shared.lab_command("off", "hyper3")
    try:
        done = shared.command("salt-run", "virt.host_lost", "hyper3")
    finally:
        shared.lab_command("on", "hyper3")

    assert done.code == 0, done.out + done.err
    is_regenerated = request.config.getoption("--regenerate")
    pageoutputs.compare(PAGE, "salt-run virt.host_lost hyper3", done.out, is_regenerated)
