"""No VM is started or removed where a stale definition of it is, while its host is silent."""

import pytest
from conftest import SHORT, swarm_of
from swarmkit.settings import Spec
from test_load import IMAGE, IMAGES, keys, there

# libvirt.VIR_DOMAIN_SHUTOFF, as the stand-in's files have it.
SHUT_OFF = 5
GIVEN = ("seed_method=nocloud", "wait=False", "headroom=False")


@pytest.fixture(scope="module")
def stale():
    """h0000 has a stale definition of web1, as virsh migrate leaves one; h0001 runs the VM."""
    with swarm_of(Spec(hosts=2, vms=0, memory_mib=2048, options=SHORT), "stale") as swarm:
        swarm.sh('mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M', IMAGES)
        done = swarm.run("virt.init", "web1", 1, 32, IMAGE, *GIVEN, "host=h0001")
        assert done.code == 0, done.out + done.err
        xml = swarm.salt("h0001", "virt.get_xml", "web1").data["h0001"]
        assert swarm.salt("h0000", "virt.define_xml_str", xml).data == {"h0000": True}
        assert swarm.run("virt.start", "web1").code == 1
        swarm.sh('kill -STOP "$1"', swarm.pid("h0001").strip())
        yield swarm
        swarm.sh('kill -CONT "$1"', swarm.pid("h0001").strip())


@pytest.mark.parametrize(
    "call",
    [
        ("virt.start", "web1"),
        ("virt.purge", "web1"),
        ("virt.migrate", "web1", "dry_run=True"),
        ("virt.vm_info", "web1"),
        ("virt.clone", "web1", "web2", "dry_run=True"),
    ],
)
def test_nothing_is_done_with_a_stale_definition(stale, call):
    done = stale.run(*call)

    assert done.code == 1, done.out
    assert "h0001 (does not answer" in done.out + done.err
    assert there(stale)["h0000"]["web1"]["state"] == SHUT_OFF
    assert "web1" in keys(stale)


def test_the_vms_of_a_silent_host_are_listed_as_they_were_last_seen(stale):
    done = stale.run("virt.list")

    assert done.data["last_seen"] == {"h0001": ["web1"]} and done.data["unreachable"] == ["h0001"]
