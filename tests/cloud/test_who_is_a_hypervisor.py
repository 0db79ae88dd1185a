"""Who is a hypervisor is the master's word: guests that say so, hosts that are shut out."""

import shlex
import time

import pytest
from cloudkit import TINY, port, reach, wait

IMAGE = "salt://images/debian-minion.qcow2"
LIST = "/etc/salt/pki/master/libvirt/hypervisors.json"


def keys_state(cloud, host):
    """Return the result of the state virt.keys on a host, and what it says."""
    done = cloud.call(host, "state.single", "virt.keys", "libvirt_keys")
    state = next(iter(done.data["local"].values()))
    return state["result"], state["comment"]


# A guest whose root says that it is a hypervisor.


@pytest.fixture
def guest(cloud):
    """A VM with a minion of its own, which has this project's modules and the grain."""
    cloud.purge_all()
    made = cloud.run("virt.init", "evil1", "2", "1024", IMAGE)
    assert made.code == 0, made.out
    for words in (
        ("saltutil.sync_all",),
        ("grains.setval", "virt_hypervisor", "True"),
        ("saltutil.refresh_grains",),
    ):
        done = cloud.command("salt", "evil1", *words, "-t", "300", "--out=json", "--static")
        assert done.code == 0, done.out + done.err
    time.sleep(2)  # the master hears of the grains by a request of its own
    yield "evil1"
    cloud.purge_all()


@pytest.mark.nightly
def test_a_guest_that_says_it_is_a_hypervisor_gets_nothing(cloud, guest):
    words = ("state.single", "virt.keys", "mine", "-t", "300", "--out=json", "--static")
    said = next(iter(cloud.command("salt", guest, *words).data[guest].values()))

    assert said["result"] is False and "evil1 is not a hypervisor of this master" in said["comment"]
    assert cloud.run("virt_pki.list", guest).out.strip() == "[]"
    assert set(cloud.run("virt.host_info").data) == set(cloud.hosts)
    refused = cloud.run("virt.init", "v1", "1", "96", TINY, f"host={guest}", "seed=False")
    assert refused.code == 1 and "'evil1' is not a hypervisor here" in refused.error
    shown = cloud.run("virt.allow").data
    assert guest not in shown["hypervisors"] and "allow_them" not in shown
    assert len(shown["candidates"][guest]["vm_on"]) == 1
    refused = cloud.run("virt.allow", guest)
    assert refused.code == 1 and "evil1 is a VM on hyper" in refused.error
    refused = cloud.run("virt.authorize", "web1", guest)
    assert refused.code == 1 and "is not a hypervisor here" in refused.error


# Shutting out.


@pytest.fixture
def out(cloud):
    """Hyper3 is shut out; what that said. Then it is let in as docs/add-a-hypervisor.md says."""
    assert reach(cloud, "hyper3", "hyper1") == (0, "hyper1")
    cloud.purge_all()
    assert cloud.run("virt.list").code == 0  # The master forgets the VMs of other tests.
    done = cloud.run("virt.disallow", "hyper3")
    yield done
    assert cloud.run("virt.allow", "hyper3").code == 0
    assert cloud.run("virt_pki.renew", "hyper3").code == 0
    cloud.salt("hyper*", "state.apply", "hypervisor.firewall")
    for source, target in (("hyper3", "hyper1"), ("hyper1", "hyper3")):
        assert reach(cloud, source, target) == (0, target)


@pytest.mark.second_nightly
def test_whoever_is_shut_out_stays_out(cloud, out):
    assert out.code == 0, out.out
    assert set(out.data["told"]) == {"hyper1", "hyper2"} and len(out.data["revoked"]) >= 4

    wait("a refusal", lambda: reach(cloud, "hyper3", "hyper2")[0] != 0, timeout_s=60)
    assert reach(cloud, "hyper1", "hyper2") == (0, "hyper2")
    result, comment = keys_state(cloud, "hyper3")
    assert result is False and "hyper3 was shut out of the hypervisors" in comment
    assert {row["state"] for row in cloud.run("virt_pki.list", "hyper3").data} <= {
        "revoked",
        "expired",
    }
    # Hosts of other tests that are gone may have had VMs when they were last seen.
    shown = cloud.run("virt.host_info").data
    assert set(shown) - {"last_seen"} == {"hyper1", "hyper2"}
    refused = cloud.run("virt.init", "v1", "1", "96", TINY, "host=hyper3", "seed=False")
    assert refused.code == 1 and "salt-run virt.allow hyper3" in refused.error
    assert port(cloud, "hyper3", "10.77.1.1", 16514) == "open"
    assert cloud.salt("hyper1", "state.apply", "hypervisor.firewall").code == 0
    assert port(cloud, "hyper3", "10.77.1.1", 16514) != "open"
    assert port(cloud, "hyper2", "10.77.1.1", 16514) == "open"


# From a release in which the grain decided.


@pytest.fixture
def upgraded(cloud):
    """A master on which nobody was allowed yet; its hosts have certificates."""
    cloud.purge_all()
    cloud.sh("master", f"mv {LIST} /srv/hypervisors.json")
    yield cloud
    cloud.sh("master", f"mv /srv/hypervisors.json {LIST}")


@pytest.mark.second_nightly
def test_the_hosts_of_an_older_release_are_shown_and_allowed_with_one_command(upgraded):
    for words in (("virt.host_info",), ("virt.init", "v1", "1", "96", TINY, "seed=False")):
        refused = upgraded.run(*words)
        assert refused.code == 1 and refused.error.startswith("this master has no hypervisors yet")
    shown = refused.data["candidates"]
    assert set(shown) == set(upgraded.hosts)
    for host in upgraded.hosts:
        finger = upgraded.call(host, "--local", "key.finger").data["local"]
        assert shown[host]["fingerprint"] == finger
        assert "has certificates" in shown[host]["why"]
        assert finger in upgraded.command("salt-run", "virt.host_info").out
    command = refused.error.split("run: ")[-1]
    assert command == "salt-run virt.allow hyper1 hyper2 hyper3"

    assert upgraded.run(*shlex.split(command)[1:]).code == 0

    assert set(upgraded.run("virt.host_info").data) == set(upgraded.hosts)
    assert upgraded.sh("master", f"stat -c '%a %U' {LIST}").split() == ["600", "salt"]
    assert keys_state(upgraded, "hyper1")[0] is True


@pytest.mark.second_nightly
def test_a_target_of_an_older_configuration_is_refused_with_the_command_in_its_place(upgraded):
    target = "G@virt_hypervisor:True"
    path = upgraded.master_conf / "master.d/hypervisors.conf"
    path.write_text(f"virt.hypervisors: {target!r}\n")
    try:
        refused = upgraded.run("virt.query")
    finally:
        path.unlink()

    assert refused.code == 1 and f"option virt:hypervisors: {target!r}" in refused.error
    assert refused.error.endswith("salt-run virt.allow hyper1 hyper2 hyper3")
