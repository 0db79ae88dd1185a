"""A QEMU that hangs, as with storage that is gone, does not keep its host from being used."""

import pytest
from cloudkit import TINY


@pytest.fixture
def hung(clean):
    """A VM on hyper1 whose QEMU is stopped, and whom nobody has asked anything since."""
    assert clean.run("virt.init", "a1", "1", "64", TINY, "host=hyper1", "seed=False").code == 0
    pid = clean.sh("hyper1", "pgrep -x qemu-system-x86").strip()
    clean.sh("hyper1", f"kill -STOP {pid}")
    yield "a1"
    clean.sh("hyper1", f"kill -CONT {pid}")
    assert clean.run("virt.purge", "a1").code == 0


def test_its_host_answers_and_takes_vms(clean, hung):
    host = clean.run("virt.host_info").data["hyper1"]
    listed = clean.run("virt.list").data["hyper1"]
    plan = clean.run("virt.init", "a2", "1", "64", TINY, "host=hyper1", "dry_run=True")

    assert host["vms"][hung]["memory_mib"] == 64 and listed["running"] == [hung]
    assert plan.code == 0, plan.out + plan.err
