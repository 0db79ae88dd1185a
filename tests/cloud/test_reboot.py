"""A host that was rebooted is what it was: network, firewall, TLS, pools, VMs."""

import json

import pytest
from cloudkit import TINY, port, reach, ticks, wait

HOSTS = ("hyper1", "hyper2", "hyper3")
# The rules that let the other hypervisors in, by whoever has them.
RULES = {
    "hyper1": "nft list table inet salt_virt",
    "hyper2": "firewall-cmd --list-rich-rules",
    "hyper3": "nft list table inet salt_virt",
}


def network(cloud, host):
    """Return the global addresses by link, and which links are ports of br0."""
    links = json.loads(cloud.sh(host, "ip -j -4 address"))
    found = {
        link["ifname"]: [a["local"] for a in link["addr_info"] if a["scope"] == "global"]
        for link in links
    }
    return {name: said for name, said in found.items() if said and name != "lo"}


def rules(cloud, host):
    """Return the host's rules for the other hypervisors, in any order."""
    return sorted(cloud.sh(host, RULES[host]).splitlines())


@pytest.fixture(
    params=[
        pytest.param("hyper1", marks=pytest.mark.nightly),
        pytest.param("hyper2", marks=pytest.mark.nightly),
        "hyper3",
    ]
)
def host(cloud, request):
    """A host with a running VM that starts with it; nothing is left afterwards."""
    name = request.param
    cloud.purge_all()
    before = cloud.traces()
    words = ("a1", "1", "96", TINY, "seed=False", "autostart=True")
    assert cloud.local(name, "virt.init", *words) is True
    wait("the guest's counter", lambda: ticks(cloud, name, "a1") > 2)
    yield name
    assert cloud.local(name, "virt.purge", "a1") is True
    assert cloud.traces() == before


def test_all_is_back_and_the_runner_sees_it(cloud, host):
    other = next(one for one in HOSTS if one != host)
    before = network(cloud, host), rules(cloud, host)
    assert before[0]["br0"] == [cloud.lab.host_ip(host)]
    assert set(before[0]) <= {"br0", "virbr0"}, "the port of the bridge has none"

    cloud.reboot(host)

    wait("the address", lambda: network(cloud, host) == before[0], timeout_s=30)
    assert cloud.sh(host, "ls /sys/class/net/br0/brif").split()[0] == "eth0"
    assert rules(cloud, host) == before[1]
    assert any(cloud.lab.host_ip(other) in rule for rule in before[1])
    assert reach(cloud, other, host) == (0, host) and reach(cloud, host, other) == (0, other)
    # firewalld has a word of its own for it.
    assert port(cloud, "master", host, 16514) in ("refused", "rejected"), "others stay out"
    assert "default" in cloud.sh(host, "virsh -q pool-list --name")
    wait("the VM", lambda: cloud.local(host, "virt.vm_state", "a1") == {"a1": "running"})
    assert cloud.run("virt.vm_info", "a1").data[host]["a1"]["state"] == "running"
    assert cloud.run("virt.host_info").data[host]["vms"] == {
        "a1": cloud.local(host, "virt.host_info")["vms"]["a1"]
    }
    failed = cloud.sh(host, "systemctl list-units --failed --plain --no-legend")
    assert failed.strip() == ""


@pytest.mark.nightly
def test_a_second_state_run_after_a_reboot_changes_nothing(cloud):
    assert cloud.salt("hyper*", "state.apply", "hypervisor").code == 0
    cloud.reboot("hyper2")

    done = cloud.salt("hyper*", "state.apply", "hypervisor")

    changed = {
        f"{host} {state['__id__']}": state["changes"] or state["comment"]
        for host, states in done.data.items()
        for state in states.values()
        if state["changes"] or state["result"] is not True
    }
    assert changed == {}
