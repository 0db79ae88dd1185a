"""docs/backup.md, block by block: a VM is copied, running and then off, and put back."""

import pytest
from cloudkit import TINY, scripts, ticks, wait

pytestmark = pytest.mark.nightly
FOLDER = "/srv/salt-images"
LEFT = f"rm -rf /srv/backup-vms {FOLDER}/web1_*.[0-9]*"


@pytest.fixture
def web1(clean):
    """A running tiny guest of that name on hyper1, with a seed; its copies are removed."""
    done = clean.run("virt.init", "web1", "1", "96", TINY, "host=hyper1", "wait=False")
    assert done.code == 0, done.out + done.err
    yield clean
    clean.sh("hyper1", LEFT)
    assert clean.run("virt.purge", "web1").code == 0


def test_a_vm_is_copied_and_put_back_as_the_page_says(web1):
    stopped, running, put_back = scripts("backup.md")

    web1.sh("hyper1", running)
    wait("the copy", lambda: "None" in web1.sh("hyper1", "virsh domjobinfo web1"))
    copies = web1.sh("hyper1", f"ls {FOLDER}/web1_system.qcow2.[0-9]*").split()
    assert len(copies) == 1
    assert "backing file" not in web1.sh("hyper1", f"qemu-img info -U {copies[0]}")

    assert web1.run("virt.stop", "web1").code == 0
    web1.sh("hyper1", stopped)
    assert "backing file" not in web1.sh("hyper1", "qemu-img info /srv/backup-vms/web1.qcow2")

    web1.sh("hyper1", f"virsh -q undefine web1; rm {FOLDER}/web1_system.qcow2")
    web1.sh("hyper1", f"rm {FOLDER}/web1_seed.iso.qcow2")
    web1.sh("hyper1", "rm -f /var/log/libvirt/qemu/web1-console.log")
    *on_the_host, on_the_master = put_back.splitlines()
    web1.sh("hyper1", "\n".join(["set -e", *on_the_host]))
    program, *words = on_the_master.partition("#")[0].split()
    assert web1.command(program, *words).code == 0
    wait("the guest's counter", lambda: ticks(web1, "hyper1", "web1") > 2)
