"""Gaps in a setup, each planted alone, for a check of the setup."""

import dataclasses
from pathlib import Path

import keypairs
import salt.version
from askedpillar import asked
from salt.exceptions import FileserverConfigError
from saltvirt.checks import installed
from saltvirt.checks.master import runningmaster
from saltvirt.checks.setup.master.setupcloud import HINT, IMAGES, MOVING, NEEDED
from saltvirt.checks.setup.setupanswer import FolderFacts, MovingFacts
from saltvirt.cluster import minionkeys
from saltvirt.cluster.rpc import minions
from saltvirt.placement.answers import DiskProfile, DomainTypes, NicProfile, Profiles
from setupkit import HOSTS, SERVED, info

NOT_LOADED = "'virt.setup_facts' is not available."
NO_BINDING = (
    "'virt' __virtual__ returned False: virt: the Python module 'libvirt' is missing on this "
    "minion; install it with 'salt-pip install libvirt-python'"
)


def option(**options):
    """Return a gap: the master has these options."""
    return lambda setup: setup.opts.update(options)


def says(**facts):
    """Return a gap: hyper1 reports these facts."""
    return lambda setup: setup.say(**facts)


def tells(**facts):
    """Return a gap: hyper1's ``virt.host_info`` has these fields."""
    return lambda setup: setup.tell(**facts)


def of_another_kind(setup):
    """Leave a refused image as the only one on the file server."""
    image = setup.folder / "srv" / SERVED[2]
    image.rename(image.with_suffix(".vmdk"))


def unserved(*names):
    """Return a gap: the file server lacks these files."""

    def plant(setup):
        for name in names:
            (setup.folder / "srv" / name).unlink()

    return plant


def release(text):
    """Return a gap: the master runs this release of Salt."""
    return lambda setup: setup.monkeypatch.setattr(salt.version, "__version__", text)


def unheard(unsigned=None, error=None, **grains):
    """Return a gap: hyper1 gives no signed answer, but an unsigned one."""
    error = error or (f"hyper1 sent no signed answer ({unsigned})" if unsigned else None)

    def plant(setup):
        setup.replies["hyper1"] = minions.Reply(minion="hyper1", is_missing=True, error=error)
        setup.unsigned.update({"hyper1": unsigned} if unsigned else {})
        asked(setup.opts, "hyper1", grains)

    return plant


def fails(error):
    """Return a gap: hyper1 refuses the question."""

    def plant(setup):
        setup.replies["hyper1"] = minions.Reply(minion="hyper1", error=error)

    return plant


def answers(value):
    """Return a gap: hyper1 gives this answer."""

    def plant(setup):
        setup.replies["hyper1"] = minions.Reply(minion="hyper1", value=value)

    return plant


def changed(setup):
    """Make the configuration newer than the running master."""
    before = Path(setup.opts["conf_file"]).stat().st_mtime - 100
    setup.monkeypatch.setattr(runningmaster, "_read_start_s", lambda _path: before)


def foreign_virt(setup):
    """Install the distribution of Salt's former virt module in the master's Python."""
    setup.monkeypatch.setattr(installed, "find_foreign_virt", lambda: ["saltext-virt"])


def broken(setup):
    """Let the file server fail; Salt's own backends log their failures and go on."""

    def refuse(_opts):
        raise FileserverConfigError("no backend")

    setup.monkeypatch.setattr(runningmaster, "Fileserver", refuse)


def nobody(setup):
    """Allow no host, with two minions that claim to be hypervisors."""
    setup.opts["virt"] = {}
    for host in HOSTS:
        asked(setup.opts, host, {"virt_hypervisor": True})


def nobody_yet(setup):
    """Allow no host, with a waiting key."""
    setup.opts["virt"] = {}
    setup.wait("newhost")


def candidate(setup):
    """Add a minion that claims to be a hypervisor."""
    minionkeys.accept(setup.opts, "hyper9", keypairs.named("a guest")[0])
    asked(setup.opts, "hyper9", {"virt_hypervisor": True})


def waiting(setup):
    """Add a waiting key of a host that a glob allows."""
    setup.opts["virt"] = {"hypervisors": ["hyper*"]}
    setup.wait("hyper3")


def keyless(setup):
    """Add an allowed host without a key."""
    setup.opts["virt"] = {"hypervisors": [*HOSTS, "hyper3"]}


def cloned(setup):
    """Make both hosts clones of one installation."""
    for host, facts in setup.facts.items():
        setup.facts[host] = dataclasses.replace(facts, machine="one")


def time_off(by_s):
    """Return a gap: hyper1's clock is wrong by this time."""
    return lambda setup: setup.say(clock_s=setup.facts["hyper1"].clock_s + by_s)


def moving(**facts):
    """Return a gap: hyper1 lacks something for moves of VMs."""
    defaults = {"certificates": [], "listens": True, "peers": {"hyper2": None}}
    return says(moving=MovingFacts(**{**defaults, **facts}))


def folder(**facts):
    """Return a gap: hyper1's image folder has these faults."""
    defaults = {"path": "/srv/vm", "why_not": None, "user": "libvirt-qemu", "closed": None}
    return says(folder=FolderFacts(**{**defaults, **facts}))


def emulated(**facts):
    """Return a gap: hyper1 emulates its guests."""
    types = DomainTypes(default="qemu", usable=["qemu"], why="libvirt offers no KVM guests")
    return lambda setup: setup.say(info=info(domain_types=types), **facts)


def profiles(nic=None, disk=None):
    """Return a gap: hyper1 has these default profiles."""
    defaults = NicProfile(bridges=["br0"], networks=[], links=[])
    disk = disk or DiskProfile(size_mib=8192)
    return tells(profiles=Profiles(nic={"default": nic or defaults}, disk={"default": disk}))


def resting(setup):
    """Make the pool of hyper1 inactive."""
    storage = dataclasses.replace(info().storage, pools={"fast": {"active": False}})
    setup.say(storagepool="fast", pool="it is not active", info=info(storage=storage))


def full(part, **facts):
    """Return a gap: hyper1 has no free room."""
    return lambda setup: setup.tell(**{part: dataclasses.replace(getattr(info(), part), **facts)})


# By planted gap: check, place and level of the only finding, and a part of its fix.
PLANTED = {
    "old Salt": (release("3005.5"), "salt-release", "master", NEEDED, "3006 LTS or 3008"),
    "not restarted": (changed, "restart", "master", NEEDED, "systemctl restart salt-master"),
    "no modules": (unserved(*SERVED[:2]), "modules-served", "master", NEEDED, "file_roots"),
    "no formula": (unserved(SERVED[1]), "formula", "master", HINT, "file_roots"),
    "no minion": (
        unserved(SERVED[3]),
        *("minion-packages", "master", IMAGES, "salt-run virt_image.minion_packages"),
    ),
    "no image": (unserved(SERVED[2]), "image", "master", HINT, "install -D -m 644"),
    "no such image": (of_another_kind, "image", "master", HINT, "install -D -m 644"),
    "hash_type": (option(hash_type="md5"), None, None, None, None),
    "file server": (broken, "file-server", "master", NEEDED, "fileserver_backend"),
    "no cache": (
        option(minion_data_cache=False),
        *("minion-data-cache", "master", MOVING, "minion_data_cache: True"),
    ),
    "pillar not on demand": (
        option(on_demand_ext_pillar=["virtkey"]),
        *("pillar", "master", MOVING, "on_demand_ext_pillar: [virtkey, libvirt]"),
    ),
    "Salt's own pillar": (option(pillar_dirs=[]), "pillar", "master", MOVING, "sync_all"),
    "nobody": (nobody, "hypervisors", "master", NEEDED, "salt-run virt.allow hyper1 hyper2"),
    "no minions": (option(virt={}), "hypervisors", "master", NEEDED, "virt.allow HOST"),
    "nobody yet": (nobody_yet, "hypervisors", "master", NEEDED, "salt-key -a HOST; salt-run"),
    "candidate": (candidate, "hypervisors", "hyper9", HINT, "salt-run virt.allow hyper9"),
    "key waits": (waiting, "keys", "hyper3", NEEDED, "salt-key -a hyper3"),
    "no key": (keyless, "keys", "hyper3", NEEDED, "id: hyper3"),
    "silent": (unheard(), "silent", "hyper1", NEEDED, "systemctl restart salt-minion"),
    "never synced": (unheard(NOT_LOADED), "modules", "hyper1", NEEDED, "hyper1 saltutil.sync_all"),
    "no binding": (unheard(NO_BINDING), "packages", "hyper1", NEEDED, "hypervisor.packages"),
    "old Python": (
        unheard(NOT_LOADED, pythonversion=[3, 6, 15, "final", 0]),
        *("python", "hyper1", NEEDED, "onedir"),
    ),
    "old minion": (
        unheard(NOT_LOADED, saltversion="3004.2"),
        *("salt-release", "hyper1", NEEDED, "update salt-minion"),
    ),
    "unsigned": (
        unheard("{'code': 'x'}", error="hyper1 sent no signed answer"),
        *("not-checked", "hyper1", NEEDED, "virt.setup_facts"),
    ),
    "a release without it": (fails(NOT_LOADED), "modules", "hyper1", NEEDED, "sync_all"),
    "an option": (
        answers({"refused_option": "option virt:images: expected x"}),
        "options",
        "hyper1",
        NEEDED,
        "mend",
    ),
    "no sense": (answers({"code": 1}), "not-checked", "hyper1", NEEDED, "virt.setup_facts"),
    "other code": (says(code="x"), "code", "hyper1", NEEDED, "salt hyper1 saltutil.sync_all"),
    "other hash": (says(hash_type="md5"), "hash-type", "hyper1", NEEDED, "hash_type: sha256"),
    "early clock": (time_off(-90), "clock", "hyper1", NEEDED, "chrony"),
    "late clock": (time_off(90), "clock", "hyper1", NEEDED, "chrony"),
    "no libvirt": (
        says(libvirt="libvirt does not answer", info=None),
        *("libvirt", "hyper1", NEEDED, "state.apply hypervisor.libvirt"),
    ),
    "an option that libvirt's answer needs": (
        says(bad_option="option virt:images: expected x", info=None),
        *("options", "hyper1", NEEDED, "mend it in the configuration"),
    ),
    "another virt on a host": (
        says(foreign_virt=["saltext-virt"]),
        *(
            "other-virt",
            "hyper1",
            NEEDED,
            "salt hyper1 pip.uninstall saltext-virt; then salt hyper",
        ),
    ),
    "another virt on the master": (
        foreign_virt,
        *("other-virt", "master", NEEDED, "salt-pip uninstall saltext-virt; then systemctl"),
    ),
    "libvirt refuses": (
        says(why_not="internal error", info=None),
        *("libvirt", "hyper1", NEEDED, "journalctl"),
    ),
    "no QEMU": (
        tells(archs=[], domain_types=DomainTypes(default=None, usable=[], why="none")),
        *("qemu", "hyper1", NEEDED, "hypervisor.packages"),
    ),
    "KVM not proved": (
        tells(domain_types=DomainTypes(default=None, usable=["qemu"], why="not proved")),
        *("domain-type", "hyper1", NEEDED, "virt: {hypervisor: qemu}"),
    ),
    "no KVM module": (
        emulated(has_kvm=False),
        *("kvm", "hyper1", HINT, "kmod.load kvm_intel persist=True"),
    ),
    "no nesting": (emulated(virtualization=""), "kvm", "hyper1", HINT, "nested"),
    "KVM hangs": (emulated(), "kvm", "hyper1", HINT, "virt-host-validate qemu"),
    "an option of the master that is misspelt": (
        option(virt={"hypervisors": list(HOSTS), "placment": "pack"}),
        *("misspelt", "master", HINT, "write placement instead of placment"),
    ),
    "an option of a host that is misspelt": (
        says(misspelt={"tag": "tags"}),
        *("misspelt", "hyper1", HINT, "write tags instead of tag in hyper1's pillar"),
    ),
    "maintenance": (tells(maintenance=True), "maintenance", "hyper1", HINT, "maintenance off"),
    "qemu-img": (says(lacking=["qemu-img"]), "qemu-img", "hyper1", NEEDED, "hypervisor.packages"),
    "prlimit": (says(lacking=["prlimit"]), "qemu-img", "hyper1", NEEDED, "hypervisor.packages"),
    "pycdlib": (says(lacking=["pycdlib"]), "seed", "hyper1", NEEDED, "hypervisor.packages"),
    "no folder": (
        folder(why_not="/srv/vm is not a folder"),
        *("image-folder", "hyper1", NEEDED, "virt: {images: FOLDER}"),
    ),
    "closed folder": (folder(closed="/vm"), "image-folder", "hyper1", NEEDED, "chmod a+x /vm"),
    "root's folder": (
        folder(closed="/root"),
        *("image-folder", "hyper1", NEEDED, "virt: {images: FOLDER}"),
    ),
    "no pool": (
        says(storagepool="fast", pool="no pool 'fast'"),
        *("pool", "hyper1", NEEDED, "state.single virt.pool_running fast"),
    ),
    "pool at rest": (resting, "pool", "hyper1", NEEDED, "virsh pool-start fast"),
    "bridge": (
        tells(bridges=[], links=["eno1"]),
        *("bridge", "hyper1", NEEDED, "hypervisor: {bridges: {br0: {ports: [eno1]}}}"),
    ),
    "bridge over one of several": (
        tells(bridges=["docker0"], links=["docker0", "eno1", "eno2"]),
        *("bridge", "hyper1", NEEDED, "(NIC: salt hyper1 network.default_route inet)"),
    ),
    "network": (
        profiles(nic=NicProfile(bridges=[], networks=["off"], links=[])),
        *("bridge", "hyper1", NEEDED, "virsh net-start off"),
    ),
    "link": (
        profiles(nic=NicProfile(bridges=[], networks=[], links=["eno9"])),
        *("bridge", "hyper1", NEEDED, "virt:nic:default"),
    ),
    "NIC profile": (
        profiles(nic=NicProfile(error="type 'x'")),
        *("profiles", "hyper1", NEEDED, "virt:nic:default"),
    ),
    "disk profile": (
        profiles(disk=DiskProfile(error="no size")),
        *("profiles", "hyper1", NEEDED, "virt:disk:default"),
    ),
    "CPUs": (full("cpu", vcpus_committed=8), "room", "hyper1", NEEDED, "virt:cpu_ratio"),
    "memory": (full("memory", committed_mib=3700), "room", "hyper1", NEEDED, "virt:reserve_mib"),
    "disk": (full("storage", committed_mib=99000), "room", "hyper1", NEEDED, "virt:disk:default"),
    "loopback": (
        says(no_master="a master called '127.0.0.1'", masters={}),
        *("guest-master", "hyper1", NEEDED, "virt: {seed: {master: ADDRESS}}"),
    ),
    "a disk of too many files": (
        says(deep={"web1": ["/x/web1_system.s21"]}),
        *("deep-disks", "hyper1", HINT, "virt.delete_snapshots web1"),
    ),
    "no way to the master": (
        says(masters={"10.0.0.9": "timed out"}),
        *("guest-master", "hyper1", NEEDED, "4505"),
    ),
    "unreadable": (
        says(unreadable={"/etc/libvirt/qemu.conf": "Permission denied"}),
        *("not-checked", "hyper1", NEEDED, "virt.setup_facts"),
    ),
    "libguestfs": (
        says(appliance="No module named 'guestfs'"),
        *("libguestfs", "hyper1", IMAGES, "hypervisor.packages"),
    ),
    "a method that looks into no image": (
        says(seed_method="nocloud"),
        *("seed-method", "hyper1", IMAGES, "virt: {seed: {method: auto}}"),
    ),
    "users": (
        says(users="the appliance's user salt-virt is missing; run: x"),
        *("appliance-users", "hyper1", IMAGES, "state.apply hypervisor.appliance"),
    ),
    "certificates": (
        moving(certificates=["/etc/pki/a", "/etc/pki/b"]),
        *("certificates", "hyper1", MOVING, "state.apply hypervisor.keys"),
    ),
    "TLS": (moving(listens=False), "tls", "hyper1", MOVING, "state.apply hypervisor.libvirt"),
    "machine id": (
        cloned,
        *("names", "hyper2", HINT, "rm /etc/machine-id, then systemd-machine-id-setup"),
    ),
    "names": (
        moving(names={"hyper2": "Name or service not known"}),
        *("names", "hyper1", MOVING, "salt hyper1 hosts.add_host ADDRESS hyper2"),
    ),
    "firewall": (
        moving(peers={"hyper2": "timed out"}),
        *("firewall", "hyper2", MOVING, "salt hyper2 state.apply hypervisor.firewall"),
    ),
}
