"""A cloud of Salt 3006.25 is taken over: all of it is seen, kept, changed, moved, removed."""

import json
import re

import oldkit
import pytest
from cloudkit import reach, wait
from oldkit import Old

pytestmark = [pytest.mark.nightly, pytest.mark.second_nightly]
HOSTS = ("hyper1", "hyper2")
CA = "/etc/salt/pki/master/libvirt"
PKI = "/etc/pki/CA /etc/pki/libvirt /etc/pki/qemu"
ALLOWED = "tls_allowed_dn_list"
CONF = "/etc/libvirt/libvirtd.conf"
IDLE = {
    "definition": False,
    "disk": {"attached": [], "detached": [], "updated": []},
    "interface": {"attached": [], "detached": []},
}
ASKED = [
    *(("list_domains",), ("list_active_vms",), ("list_inactive_vms",), ("vm_info",), ("vm_state",)),
    *((f"get_{what}", "web") for what in ("disks", "nics", "macs", "graphics")),
    *(("get_disks", vm) for vm in ("over", "byhand", "thin")),
    *(("list_snapshots",), ("get_xml", "plain")),
    *(("list_pools",), ("pool_info",), ("pool_list_volumes", "vms"), ("volume_infos", "vms")),
    *(
        ("list_networks",),
        ("network_info",),
        ("network_get_xml", "inner"),
        ("pool_get_xml", "more"),
    ),
]


def restart(cloud, host):
    """Restart libvirtd, which reads its settings and its keys."""
    cloud.service(host, "libvirtd", "stop")
    cloud.service(host, "libvirtd", "start")


def keys(cloud, host):
    """Apply the state of the keys as 3006's SLS have it; return its answer."""
    done = cloud.call(host, "state.single", "virt.keys", "libvirt_keys")
    return next(iter(done.data["local"].values()))


@pytest.fixture(scope="module")
def bare(cloud):
    """The lab without its CA and its hosts' keys, and without what looks at those."""
    cloud.purge_all()
    cloud.sh("master", f"rm -rf /srv/kept-ca; mv {CA} /srv/kept-ca")
    try:
        for host in HOSTS:
            cloud.sh(host, f"rm -rf {PKI}; sed -i 's/^{ALLOWED}/#kept {ALLOWED}/' {CONF}")
            # certtool, without which 3006's pillar is not there.
            cloud.sh(host, "apt-get update -qq && apt-get install -y -qq gnutls-bin 2>&1")
        yield cloud
    finally:
        cloud.sh("master", f"rm -rf {CA}; mv /srv/kept-ca {CA}; rm -f /srv/salt/oldcloud.sls")
        for host in HOSTS:
            oldkit.clear(cloud, host)
            cloud.sh(host, f"rm -rf {PKI}; sed -i 's/^#kept {ALLOWED}/{ALLOWED}/' {CONF}")
        for host in cloud.hosts:
            keys(cloud, host)
            restart(cloud, host)


class Made:
    """What 3006.25 has made, and how it was then."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.here, self.other = (Old(cloud, host) for host in HOSTS)
        self.keys = oldkit.make_keys(cloud, HOSTS)
        self.said = [one.take_keys(self.keys) for one in (self.here, self.other)]
        for host in HOSTS:
            restart(cloud, host)
        self.other.call("state.apply", "oldplaces")
        self._make()
        self.uuids = oldkit.uuids(cloud)
        self.definitions = oldkit.definitions(cloud, "hyper1")

    def _make(self):
        call = self.here.call
        call("state.apply", "oldcloud")
        self.cloud.sh("hyper1", f"qemu-img create -q {oldkit.VMS}/byhand.img 8M; mkdir /srv/more")
        assert call("virt.pool_define", "more", "dir", "target=/srv/more") is True
        given = ("virbr8", "nat", "ipv4_config={cidr: 192.168.98.0/24}", "autostart=False")
        assert call("virt.network_define", "apart", *given) is True
        assert call("virt.define_xml_str", oldkit.BY_HAND) is True
        base = oldkit.BASE
        self.cloud.sh(
            "hyper1",
            f"mkdir -p {base.rpartition('/')[0]}; cp {oldkit.IMAGE} {base}; "
            f"qemu-img create -q -f qcow2 -F qcow2 -b {base} {oldkit.THIN}",
        )
        assert call("virt.define_xml_str", oldkit.OVERLAY) is True
        words = ["disk=None", "nic=None", "seed=False", "start=False"]
        disks = f"disks={json.dumps([oldkit.OVER])}"
        assert call("virt.init", "over", "1", "64", disks, *words) is True
        for vm, name in (("plain", "first"), ("plain", "second"), ("db", "live")):
            assert call("virt.snapshot", vm, name) == {"name": name}

    def is_whole(self, **where):
        """Check that all VMs are there once, with the UUIDs that they had, and where some are."""
        assert oldkit.uuids(self.cloud) == self.uuids
        for name, host in where.items():
            assert name in self.cloud.sh(host, "virsh -q list --all --name").split()
        return True


@pytest.fixture(scope="module")
def made(bare):
    """The cloud that 3006.25 has made: on hyper1, and places for its VMs on hyper2."""
    return Made(bare)


def ticks(cloud, host):
    """Return the last number that web's guest has said on its port, 0 if it says nothing now."""
    script = f"timeout 2 bash -c 'cat </dev/tcp/127.0.0.1/{oldkit.CONSOLE}' || true"
    found = re.findall(r"TICK (\d+) ", cloud.sh(host, script))
    return int(found[-1]) if found else 0


def counts(cloud, host, above):
    """Wait until web's guest says a higher number than one that it has said."""
    wait("the guest's counter", lambda: ticks(cloud, host) > above)


def test_all_of_it_is_seen_as_it_was(made):
    for function, *words in ASKED:
        theirs = made.here.call(f"virt.{function}", *words)
        ours = made.cloud.local("hyper1", f"virt.{function}", *words)

        assert list(oldkit.lacking(theirs, ours)) == [], function
    infos = made.cloud.local("hyper1", "virt.volume_infos", "vms")["vms"]
    assert infos["web_system"]["used_by"] == ["web"]


def test_the_same_sls_defines_nothing_anew(made):
    (made.cloud.fileroot / "oldcloud.sls").write_text(json.dumps(oldkit.CLOUD))

    for more in ("test=True", "test=False", "test=False"):
        done = made.cloud.call("hyper1", "state.apply", "oldcloud", more)

        assert done.code == 0, done.out
        for one in done.data["local"].values():
            assert (one["result"], one["changes"]) == (True, {}), one
    assert oldkit.definitions(made.cloud, "hyper1") == made.definitions
    assert made.is_whole(web="hyper1", db="hyper1", plain="hyper1")


def test_its_hosts_trusted_each_other_and_do_afterwards(made):
    cloud = made.cloud
    assert [one["result"] for one in made.said] == [True, True], made.said
    assert set(made.said[0]["changes"]) >= {"serverkey", "clientkey", "cacert"}
    assert reach(cloud, "hyper1", "hyper2") == (0, "hyper2")
    before = cloud.sh("hyper1", "cat /etc/pki/CA/cacert.pem")

    refused = cloud.run("virt.allow", *cloud.hosts)
    assert refused.code == 1 and "run: chown -hR salt: " in refused.error
    cloud.sh("master", f"chown -hR salt: {CA}")
    assert cloud.run("virt.allow", *cloud.hosts).code == 0
    answers = [keys(cloud, host) for host in cloud.hosts]

    assert [one["result"] for one in answers] == [True, True, True], answers
    assert keys(cloud, "hyper1")["changes"] == {}
    assert cloud.sh("hyper1", "cat /etc/pki/CA/cacert.pem") == before, "it is the same CA"
    for host in HOSTS:
        for kind in ("server", "client"):
            here = cloud.sh(host, f"cat /etc/pki/libvirt/private/{kind}key.pem")
            assert here != (made.keys / host / f"{kind}key.pem").read_text(), "nobody else has it"
        cloud.sh(host, f"sed -i 's/^#kept {ALLOWED}/{ALLOWED}/' {CONF}")
    for host in cloud.hosts:
        restart(cloud, host)
    assert reach(cloud, "hyper1", "hyper2") == (0, "hyper2")
    assert reach(cloud, "hyper2", "hyper1") == (0, "hyper1")
    listed = cloud.run("virt.list").data["hyper1"]
    assert sorted(sum(listed.values(), [])) == sorted(made.uuids)
    assert made.is_whole(web="hyper1")


def test_new_cas_end_what_its_keys_opened(made):
    cloud = made.cloud
    old = (made.keys / "hyper1/clientcert.pem").read_text()
    asked = f"openssl verify -CAfile /etc/pki/CA/cacert.pem 2>&1 <<'X' || true\n{old}X\n"
    assert "OK" in cloud.sh("hyper2", asked)

    done = cloud.run("virt_pki.rotate_ca")

    assert done.code == 0, done.out
    assert "OK" not in cloud.sh("hyper2", asked)
    cloud.sh("master", f"rm -r {CA}/hyper1 {CA}/hyper2")
    assert reach(cloud, "hyper1", "hyper2") == (0, "hyper2")
    assert reach(cloud, "hyper2", "hyper1") == (0, "hyper1")


WITH_MORE = [{**oldkit.SYSTEM, "image": None}, {"name": "data", "pool": "vms", "size": 16}]


@pytest.mark.parametrize(
    ("vm", "given"),
    [
        ("web", {"mem": 64}),
        ("web", {"disks": WITH_MORE}),
        ("web", {"disks": [*WITH_MORE, {"name": "more", "pool": "vms", "size": 8}]}),
        ("web", {"cpu": 2, "boot_dev": "hd network"}),
        ("web", {"autostart": True}),
        ("plain", {"cpu": 2, "mem": 80}),
        ("thin", {"mem": 80, "disks": [{"name": "system", "size": 128}]}),
        ("byhand", {"interfaces": [oldkit.LAN | {"mac": "52:54:00:aa:00:02"}]}),
    ],
)
def test_its_vms_change_and_a_second_call_changes_nothing(made, vm, given):
    words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    said = made.cloud.local("hyper1", "virt.update", vm, *words, "test=True")

    done = made.cloud.local("hyper1", "virt.update", vm, *words)

    said.pop("diff")  # only a test has it
    assert said == done and done != IDLE
    assert made.cloud.local("hyper1", "virt.update", vm, *words) == IDLE
    assert made.is_whole(web="hyper1")


def test_a_running_vm_with_volumes_moves_and_comes_back(made):
    cloud = made.cloud
    counts(cloud, "hyper1", 2)
    for here, there in (("hyper1", "hyper2"), ("hyper2", "hyper1")):
        before = ticks(cloud, here)

        done = cloud.run("virt.migrate", "web", there)

        assert done.code == 0, done.out
        counts(cloud, there, before)
        assert made.is_whole(web=there)
        assert {"web_system", "web_data"} <= set(
            cloud.local(there, "virt.pool_list_volumes", "vms")
        )
        assert "web_" not in str(cloud.local(here, "virt.pool_list_volumes", "vms"))
    assert cloud.local("hyper1", "virt.get_disks", "web")["vda"]["file"] == "vms/web_system"


def test_a_stopped_vm_moves_with_its_snapshots_and_goes_back_to_them(made):
    cloud = made.cloud
    before = cloud.local("hyper1", "virt.list_snapshots", "plain")

    done = cloud.run("virt.migrate", "plain", "hyper2")

    assert done.code == 0, done.out
    assert cloud.local("hyper2", "virt.list_snapshots", "plain") == before
    assert cloud.local("hyper2", "virt.revert_snapshot", "plain", "first")["reverted"] == "first"
    assert made.is_whole(plain="hyper2")


def test_one_in_a_volume_goes_back_to_when_it_ran_on_its_new_host(made):
    cloud = made.cloud
    refused = cloud.run("virt.migrate", "db", "hyper2")
    assert "it has snapshots, which libvirt does not move while a VM runs" in refused.error
    assert cloud.local("hyper1", "virt.stop", "db") is True

    done = cloud.run("virt.migrate", "db", "hyper2")

    assert done.code == 0, done.out
    cloud.local("hyper2", "virt.revert_snapshot", "db", "live")
    assert cloud.local("hyper2", "virt.vm_state", "db") == {"db": "running"}
    assert made.is_whole(db="hyper2")


def test_one_by_hand_moves_and_one_over_a_file_of_its_host_is_told_why_not(made):
    done = made.cloud.run("virt.migrate", "byhand", "hyper2")
    refused = [made.cloud.run("virt.migrate", vm, "hyper2") for vm in ("over", "thin")]

    assert done.code == 0, done.out
    for one, base in zip(refused, (oldkit.IMAGE, oldkit.BASE), strict=True):
        assert f"is based on {base}, which is not a cached image" in one.error
    assert made.is_whole(byhand="hyper2", over="hyper1", thin="hyper1")


def test_nothing_of_it_is_garbage(made):
    found = made.cloud.run("virt.doctor")

    assert found.code == 0, found.out


def test_it_is_removed_with_its_volumes_and_nothing_else(made):
    cloud = made.cloud
    for vm in made.uuids:
        done = cloud.run("virt.purge", vm)
        assert done.code == 0, done.out
    assert oldkit.uuids(cloud) == {}
    for host in HOSTS:
        assert cloud.sh(host, f"ls {oldkit.VMS}").split() == []
        assert cloud.local(host, "virt.pool_list_volumes", "vms") == []
    bases = sorted([oldkit.IMAGE, oldkit.BASE])
    # There may be the cache of images, of which these VMs had none.
    left = f"find /srv/salt-images -maxdepth 1 -type f; ls {' '.join(bases)}"
    assert cloud.sh("hyper1", left).split() == bases

    for state, name in (("pool_deleted", "vms"), ("pool_absent", "more")):
        done = cloud.local("hyper1", "state.single", f"virt.{state}", name)
        assert next(iter(done.values()))["result"] is True
    for name in ("lan", "inner", "apart"):
        done = cloud.local("hyper1", "state.single", "virt.network_absent", name)
        assert next(iter(done.values()))["result"] is True
    assert not {"vms", "more"} & set(cloud.local("hyper1", "virt.list_pools"))
    assert not {"lan", "inner", "apart"} & set(cloud.local("hyper1", "virt.list_networks"))
