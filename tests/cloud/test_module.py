"""The execution module on a hypervisor: call forms, life cycle, and the old answers' shapes."""

import json
import re
import subprocess

import pytest
from cloudkit import TINY, ticks, wait

CACHE = "/srv/salt-images/base"


@pytest.fixture
def local_image(clean):
    """An image in the hypervisor's own file system, as the seeds have it."""
    path = "/srv/centos.qcow2"
    clean.local("hyper1", "cp.get_file", TINY, path)
    yield path
    clean.sh("hyper1", f"rm -f {path}")


def xml_of(cloud, name):
    """Return a VM's XML on hyper1."""
    return cloud.local("hyper1", "virt.get_xml", name)


def init(cloud, *words):
    """Call virt.init on hyper1; it must succeed."""
    assert cloud.local("hyper1", "virt.init", *words) is True


def purge(cloud, name):
    """Call virt.purge on hyper1."""
    assert cloud.local("hyper1", "virt.purge", name) is True


def test_the_seeds_first_call_form(clean):
    init(clean, "centos1", "2", "512", TINY, "seed=False")

    info = clean.local("hyper1", "virt.vm_info", "centos1")["centos1"]
    assert (info["cpu"], info["mem"], info["state"]) == (2, 524288, "running")
    assert info["disks"]["vda"]["file"] == "/srv/salt-images/centos1_system.qcow2"
    assert info["disks"]["vda"]["backing file"]["file"].startswith(CACHE)
    purge(clean, "centos1")


def test_the_seeds_copy_on_write_form_is_not_started(clean, local_image):
    init(clean, "centos1", "2", "512", f"image={local_image}", "enable_qcow=True", "start=False")

    assert clean.local("hyper1", "virt.vm_state", "centos1") == {"centos1": "shutdown"}
    disk = clean.local("hyper1", "virt.get_disks", "centos1")["vda"]
    assert disk["backing file"]["file"].startswith(CACHE)
    assert disk["virtual size"] == 8192 * 2**20
    purge(clean, "centos1")
    assert clean.sh("hyper1", f"ls {local_image}").strip() == local_image


def test_a_full_copy_where_no_overlay_is_wanted(clean, local_image):
    init(clean, "c1", "1", "64", f"file://{local_image}", "enable_qcow=False", "start=False")

    assert "backing file" not in clean.local("hyper1", "virt.get_disks", "c1")["vda"]
    purge(clean, "c1")


def test_a_full_copy_shares_its_blocks_where_the_file_system_can(clean):
    image = f"{clean.folder('hyper1')}/srv/xfs.img"
    subprocess.run(["truncate", "-s", "4G", image], check=True)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    clean.mount_image("hyper1", "/srv/xfs.img", "/srv/salt-images")
    try:
        init(clean, "c1", "1", "64", TINY, "enable_qcow=False", "start=False", "seed=False")

        extents = clean.sh("hyper1", "filefrag -v /srv/salt-images/c1_system.qcow2")
        assert "shared" in extents
        purge(clean, "c1")
    finally:
        clean.sh("hyper1", "umount /srv/salt-images; rm /srv/xfs.img")


def test_a_content_is_fetched_once_per_host(clean, local_image):
    init(clean, "c1", "1", "64", TINY, "start=False", "seed=False")
    init(clean, "c2", "1", "64", local_image, "start=False", "seed=False")

    bases = {
        clean.local("hyper1", "virt.get_disks", n)["vda"]["backing file"]["file"]
        for n in ("c1", "c2")
    }
    assert len(bases) == 1
    purge(clean, "c1")
    purge(clean, "c2")
    assert clean.sh("hyper1", f"ls {bases.pop()}")


def test_vnc_is_asked_for_and_listens_on_loopback(clean):
    init(clean, "c1", "1", "64", TINY, "enable_vnc=True", "seed=False")

    assert clean.local("hyper1", "virt.get_graphics", "c1")["listen"] == "127.0.0.1"
    listening = clean.sh("hyper1", "ss -Hltn | awk '{print $4}'").split()
    assert "127.0.0.1:5900" in listening
    assert not {"0.0.0.0:5900", "*:5900", "[::]:5900"} & set(listening)
    purge(clean, "c1")


def test_the_old_keywords_arrive_in_the_definition(clean):
    init(
        clean,
        "c1",
        "2",
        "256",
        "image=" + TINY,
        "seed=False",
        "start=False",
        "hypervisor=qemu",
        "arch=x86_64",
        "os_type=hvm",
        "boot_dev=network hd",
        "stop_on_reboot=True",
        "clock={utc: false, timezone: CET}",
        "hypervisor_features={kvm-hint-dedicated: true}",
        "numatune={memory: {mode: strict, nodeset: '0'}}",
        "serials=[{type: tcp, port: 4555}]",
        "consoles=[{type: pty}]",
        "graphics={type: vnc, port: 5999}",
        "interfaces=[{name: eth0, model: e1000}, "
        "{name: eth1, bridge: br0, mac: '52:54:00:01:02:03'}]",
        "disks=[{name: data, size: 16, format: raw, model: scsi}, {name: cd, device: cdrom}]",
    )

    xml = xml_of(clean, "c1")
    for piece in (
        "<domain type='qemu'",
        "<boot dev='network'/>",
        "<on_reboot>destroy</on_reboot>",
        "timezone='CET'",
        "<hint-dedicated state='on'/>",
        "mode='strict'",
        "service='4555'",
        "port='5999'",
        "<model type='e1000'/>",
        "52:54:00:01:02:03",
        "bus='scsi'",
        "device='cdrom'",
    ):
        assert piece in xml, piece
    purge(clean, "c1")


def test_a_kernel_of_the_host_can_be_booted_directly(clean):
    kernel = clean.sh("hyper1", "ls /boot/vmlinuz-*-cloud-amd64 | tail -1").strip()
    boot = json.dumps({"kernel": kernel, "cmdline": "console=ttyS0 panic=-1"})
    init(clean, "k1", "1", "128", f"boot={boot}", "disk=None", "nic=None")

    wait("the kernel's last words", lambda: "Kernel panic" in clean.console("hyper1", "k1"))
    purge(clean, "k1")


def test_disks_can_lie_in_a_folder_or_a_pool(clean):
    clean.sh("hyper1", "mkdir -p /srv/pool && virsh -q pool-create-as p1 dir --target /srv/pool")
    try:
        disks = "disks=[{name: system, pool: p1}, {name: data, size: 8, pool: /srv/pool}]"
        init(clean, "c1", "1", "64", TINY, "seed=False", "start=False", disks)

        files = clean.sh("hyper1", "ls /srv/pool").split()
        assert files == ["c1_data.qcow2", "c1_system.qcow2"]
        assert "c1_system.qcow2" in clean.sh("hyper1", "virsh -q vol-list p1")
        purge(clean, "c1")
        assert clean.sh("hyper1", "ls /srv/pool") == ""
    finally:
        clean.sh("hyper1", "virsh -q pool-destroy p1; rm -rf /srv/pool")


def test_another_vms_disk_survives_a_purge(clean):
    init(clean, "c1", "1", "64", TINY, "seed=False", "start=False")
    disk = "/srv/salt-images/c1_system.qcow2"
    disks = f"disks=[{{name: d, source_file: {disk}}}]"
    init(clean, "c2", "1", "64", "start=False", "disk=None", disks)

    purge(clean, "c1")

    assert clean.sh("hyper1", f"ls {disk}").strip() == disk
    purge(clean, "c2")
    assert disk not in clean.sh("hyper1", "ls /srv/salt-images")


def test_the_users_own_keys_reach_the_seed_and_no_log(clean):
    clean.sh("hyper1", "openssl genrsa -out /srv/k.pem 2048 2>/dev/null")
    clean.sh("hyper1", "openssl rsa -in /srv/k.pem -pubout -out /srv/k.pub 2>/dev/null")
    init(clean, "c1", "1", "64", TINY, "start=False", "pub_key=/srv/k.pub", "priv_key=/srv/k.pem")

    seed = clean.folder("hyper1") / "srv/salt-images/c1_seed.iso.qcow2"
    key = (clean.folder("hyper1") / "srv/k.pem").read_bytes()
    assert seed.read_bytes().rstrip(b"\0").endswith(key.rstrip(b"\0"))
    purge(clean, "c1")
    assert not seed.exists()
    clean.sh("hyper1", "rm /srv/k.pem /srv/k.pub")


def test_profiles_of_the_configuration_are_used(clean):
    conf = clean.folder("hyper1") / "etc/salt/minion.d/profiles.conf"
    conf.write_text(
        json.dumps(
            {
                "virt.nic": {"two": [{"eth0": {"bridge": "br0"}}, {"eth1": {"bridge": "br0"}}]},
                "virt.disk": {"big": [{"system": {"size": 9000}}, {"data": {"size": 10}}]},
            }
        )
    )
    try:
        init(clean, "c1", "1", "64", TINY, "nic=two", "disk=big", "seed=False", "start=False")

        assert len(clean.local("hyper1", "virt.get_macs", "c1")) == 2
        sizes = {
            t: d["virtual size"] // 2**20
            for t, d in clean.local("hyper1", "virt.get_disks", "c1").items()
        }
        assert sizes == {"vda": 9000, "vdb": 10}
        assert set(clean.local("hyper1", "virt.get_profiles")["nic"]) == {"default", "nat", "two"}
        purge(clean, "c1")
    finally:
        conf.unlink()


def test_a_vm_goes_through_its_life(cloud, vm):
    def state():
        return cloud.local("hyper1", "virt.vm_state", vm)[vm]

    def do(verb, *words):
        assert cloud.local("hyper1", f"virt.{verb}", vm, *words) is True

    wait("a ticking guest", lambda: ticks(cloud, "hyper1", vm) > 3)
    do("pause")
    assert state() == "paused"
    do("resume")
    assert state() == "running"
    seen = ticks(cloud, "hyper1", vm)
    do("reset")
    wait("a guest that counts anew", lambda: ticks(cloud, "hyper1", vm) < seen)
    wait("a ticking guest", lambda: ticks(cloud, "hyper1", vm) > 3)
    do("shutdown")
    wait("a guest that is off", lambda: state() == "shutdown")
    do("setmem", "128", "config=True")
    do("setvcpus", "2", "config=True")
    do("start")
    info = cloud.local("hyper1", "virt.vm_info", vm)[vm]
    assert (info["cpu"], info["maxMem"]) == (2, 128 * 1024)
    do("set_autostart", "on")
    assert re.search(r"Autostart: +enable", cloud.sh("hyper1", f"virsh dominfo {vm}"))
    do("stop")
    assert state() == "shutdown"


OLD_SHAPES = {
    "node_info": {
        "cpucores": int,
        "cpumhz": int,
        "cpumodel": str,
        "cpus": int,
        "cputhreads": int,
        "numanodes": int,
        "phymemory": int,
        "sockets": int,
    },
    "vm_info": {
        "cpu": int,
        "cputime": int,
        "disks": dict,
        "graphics": dict,
        "nics": dict,
        "uuid": str,
        "loader": dict,
        "on_crash": str,
        "on_reboot": str,
        "on_poweroff": str,
        "maxMem": int,
        "mem": int,
        "state": str,
    },
    "disk": {
        "file": str,
        "type": str,
        "file format": str,
        "virtual size": int,
        "disk size": int,
        "backing file": dict,
    },
    "nic": {"type": str, "mac": str, "source": dict, "model": str, "address": dict},
    "graphics": {"autoport": str, "keymap": str, "listen": str, "port": str, "type": str},
}


def fits(shape, value):
    """Check that an answer has at least the old keys with the old types."""
    wanted = OLD_SHAPES[shape]
    assert {k: type(value[k]) for k in wanted} == wanted


def test_answers_keep_their_old_shapes(cloud, vm):
    info = cloud.local("hyper1", "virt.full_info")

    assert set(info) == {"freecpu", "freemem", "node_info", "vm_info"}
    assert (type(info["freecpu"]), type(info["freemem"])) == (int, float)
    fits("node_info", info["node_info"])
    one = info["vm_info"][vm]
    fits("vm_info", one)
    fits("disk", one["disks"]["vda"])
    mac, nic = next(iter(one["nics"].items()))
    fits("nic", nic)
    fits("graphics", one["graphics"])
    assert mac == nic["mac"] == cloud.local("hyper1", "virt.get_macs", vm)[0]
    assert cloud.local("hyper1", "virt.get_nics", vm) == one["nics"]
    assert cloud.local("hyper1", "virt.get_loader", vm) == {"path": "None"}
    assert cloud.local("hyper1", "virt.list_domains") == [vm]
    assert cloud.local("hyper1", "virt.list_active_vms") == [vm]
    assert cloud.local("hyper1", "virt.list_inactive_vms") == []
    assert cloud.local("hyper1", "virt.is_hyper") is True
    assert cloud.local("hyper1", "virt.get_hypervisor") == "qemu"
    assert re.match(r"[\w-]+$", cloud.local("hyper1", "virt.virt_type"))
    assert cloud.local("hyper1", "virt.freecpu") == info["freecpu"]


def test_kvm_is_proved_and_not_believed(cloud):
    types = cloud.local("hyper1", "virt.host_info")["domain_types"]

    assert types["default"] == "qemu"
    assert types["why"]


def test_the_node_of_a_device_is_no_proof_of_kvm(cloud):
    """Where libvirt lists kvm the answer must come from a guest that ran or hung."""
    lists_kvm = "type='kvm'" in cloud.sh("hyper1", "virsh capabilities")
    if not lists_kvm:
        pytest.skip("this machine has no /dev/kvm, so libvirt lists no kvm")

    assert "kvm" in cloud.local("hyper1", "virt.host_info")["domain_types"]["why"].lower()


def test_the_features_that_a_cpu_model_implies_are_known(cloud):
    cpu = cloud.local("hyper1", "virt.host_info")["cpu"]

    # Every model of a 64-bit CPU has it, so that libvirt does not list it beside the model.
    assert "sse2" in cpu["features"]["qemu"]


def test_a_configured_domain_type_wins(clean):
    conf = clean.folder("hyper1") / "etc/salt/minion.d/type.conf"
    conf.write_text("virt.hypervisor: qemu\n")
    try:
        types = clean.local("hyper1", "virt.host_info")["domain_types"]
        assert types == {
            "default": "qemu",
            "usable": ["qemu"],
            "why": "virt:hypervisor is set to qemu",
        }
    finally:
        conf.unlink()


def test_many_hosts_are_addressed_at_once(clean):
    done = clean.salt("hyper*", "virt.list_domains")

    assert done.data == {"hyper1": [], "hyper2": [], "hyper3": []}


def test_affinity_and_maintenance_decide_where_a_vm_goes(clean):
    words = [TINY, "seed=False", "start=False"]
    first = clean.run("virt.init", "a1", "1", "64", *words, "anti_affinity=db").data["host"]
    second = clean.run("virt.init", "a2", "1", "64", *words, "anti_affinity=db").data["host"]
    assert first != second
    third = next(h for h in clean.hosts if h not in (first, second))
    clean.local(third, "virt.maintenance", "on")
    dry = clean.run("virt.init", "a3", "1", "64", *words, "anti_affinity=db", "dry_run=True")
    clean.local(third, "virt.maintenance", "off")

    assert dry.code == 1 and "no host fits 'a3'" in dry.data["error"]
    plan = dry.data["hosts"]
    assert [row["fits"] for row in plan.values()] == [False, False, False]
    assert plan[third]["reasons"] == ["in maintenance"]
    assert "anti-affinity group db" in plan[first]["reasons"][0]
    near = clean.run("virt.init", "b1", "1", "64", *words, "affinity=web", "where=hyper2").data
    also = clean.run("virt.init", "b2", "1", "64", *words, "affinity=web").data
    assert near["host"] == also["host"] == "hyper2"
    for name in ("a1", "a2", "b1", "b2"):
        assert clean.run("virt.purge", name).code == 0


def test_the_next_host_is_the_emptiest(clean):
    first = clean.run("virt.next_host").out
    assert '"hyper1"' in first
    made = clean.run("virt.init", "n1", "1", "512", TINY, "seed=False", "start=False")
    assert made.data["host"] == "hyper1"

    assert '"hyper2"' in clean.run("virt.next_hyper").out
    assert clean.run("virt.purge", "n1").code == 0
