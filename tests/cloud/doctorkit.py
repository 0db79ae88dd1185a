"""What is planted for ``virt.doctor``: where and how, what is found, and how it is taken back."""

import json
import uuid

IMAGES, STATE = "/srv/salt-images", "/var/lib/salt-virt"
LIBVIRT = "/var/lib/libvirt/qemu"
NOTES = "/var/cache/salt/master"
EXTMODS = "/var/cache/salt/minion/extmods"
SITE = "$(/opt/saltstack/salt/bin/python3 -c 'import site; print(site.getsitepackages()[0])')"
OLD = "touch -d '2 days ago'"
UUID = str(uuid.UUID(int=7))
MARK = """import json, os, sys
path, vm, uuid = sys.argv[1:]
said = {"vm": vm, "uuid": uuid, "folder": os.path.realpath(os.path.dirname(path))}
said |= {"name": os.path.basename(path), "number": str(os.stat(path).st_ino)}
said |= {"host": open("/etc/machine-id").read().strip()}
os.setxattr(path, "user.salt-virt.made", json.dumps(said).encode())"""
INVALID = "/nowhere"


def record(node, purpose, name, phase, facts):
    """Return a script that leaves a record as a command has that was killed."""
    folder = f"{STATE}/records" if node != "master" else f"{NOTES}/salt-virt/records"
    text = json.dumps(
        {
            "version": 1,
            "purpose": purpose,
            "name": name,
            "token": "7" * 32,
            "phase": phase,
            "since": 1.0,
            "facts": facts,
        }
    )
    # On a fresh master this may be the first that is noted.
    owner = f"-o salt -m 700 {NOTES}/salt-virt" if node == "master" else ""
    path = f"{folder}/{purpose}/{name}.json"
    return (
        f"install -d {owner} -m 700 {folder} {folder}/{purpose}; "
        f"cat >{path} <<'X'\n{text}\nX\n" + (f"chown salt {path}\n" if owner else "")
    )


def made(path, vm="gone1"):
    """Return a script that makes a file as it was made for a VM."""
    return (
        f"install -d $(dirname {path}); qemu-img create -q -f qcow2 {path} 1M; "
        f"/opt/saltstack/salt/bin/python3 -c '{MARK}' {path} {vm} {UUID}; {OLD} {path}"
    )


def named(path):
    """Return a script that leaves a file."""
    return f"install -d $(dirname {path}); echo left >{path}; {OLD} {path}"


ROOM = {"vcpus": 1, "memory_mib": 64, "disk_mib": 1, "affinity": [], "anti_affinity": []}
BUILD = {"uuid": UUID, "paths": [f"{IMAGES}/gone2_system.qcow2"], "begun": [], **ROOM}
DEPARTURE = {
    "uuid": UUID,
    "target": "hyper2",
    "was_running": False,
    "autostart": False,
    "leaves": True,
    "paths": [],
}
POOL = (
    "mkdir -p /srv/incoming; "
    "virsh -q pool-create-as salt-virt-incoming-000000000000 dir --target /srv/incoming"
)
# Name: node, how it is planted, what is found where, by which subject, and how what is left of it
# is taken back. What has no subject is found by the other two.
PLANTED = {
    "a disk": ("hyper1", made(f"{IMAGES}/gone1_system.qcow2"), "disk", "hyper1"),
    "a seed": ("hyper1", made(f"{IMAGES}/gone1_seed.iso.qcow2"), "seed", "hyper1"),
    "a build": (
        "hyper1",
        record("hyper1", "build", "gone2", "making", BUILD),
        *("unfinished", "hyper1"),
    ),
    "a purge": (
        "hyper2",
        record("hyper2", "purge", "gone3", "removing", {"uuid": UUID, "paths": []}),
        *("unfinished", "hyper2"),
    ),
    "half a move": (
        "hyper1",
        record("hyper1", "departure", "gone5", "cancelled", DEPARTURE),
        *("half-move", "hyper1"),
    ),
    "an order": (
        "master",
        record("master", "order", "gone6", "keyed", {"public_key": "none"}),
        *("order", "master"),
    ),
    "a key": (
        "master",
        "K=$(openssl genrsa 2048 2>/dev/null | openssl rsa -pubout 2>/dev/null); "
        f"install -d -o salt -m 700 {NOTES}/salt-virt-keys; "
        f'echo "$K" >{NOTES}/salt-virt-keys/gone7; echo "$K" >/etc/salt/pki/master/minions/gone7; '
        f"chown salt {NOTES}/salt-virt-keys/gone7 /etc/salt/pki/master/minions/gone7",
        *("key", "master"),
    ),
    "an authorization": (
        "master",
        f"install -d -o salt -m 700 {NOTES}/salt-virt-authorised; "
        'echo \'{"version": 1, "host": "hyper1", "digest": "0", "until": 1, "replace": false}\' '
        f">{NOTES}/salt-virt-authorised/gone8.json; "
        f"chown salt {NOTES}/salt-virt-authorised/gone8.json",
        *("authorization", "master"),
    ),
    "a token": ("hyper2", named(f"{STATE}/tokens/gone9"), "token", "hyper2"),
    "a pool": ("hyper2", POOL, "pool", "hyper2"),
    "a console log": (
        *("hyper1", named("/var/log/libvirt/qemu/gone1-console.log"), "console-log", "hyper1"),
    ),
    "a download": (
        *("hyper2", named(f"{IMAGES}/base/0123456789abcdef.partial"), "download", "hyper2"),
    ),
    "a lock": (
        "hyper3",
        f"install -d {STATE}/orders; touch {STATE}/orders/77.lock",
        *("lock", "hyper3"),
    ),
    "an order's lock": (
        "master",
        f"install -d -o salt -m 700 {NOTES}/salt-virt/records/order; "
        f"install -o salt /dev/null {NOTES}/salt-virt/records/order/gone10.lock",
        *("lock", "master"),
    ),
    "a build's mark": (
        *("hyper3", named(f"{IMAGES}/.salt-virt-777777777777-888888888888"), "mark", "hyper3"),
    ),
    "a part of a bridge's file": (
        "hyper3",
        "install -d /etc/netplan; P=/etc/netplan/.0123456789ab-1-x.yaml.part; "
        # What tells its age cannot be set: it is of this boot, by a process that is gone.
        'B=$(/opt/saltstack/salt/bin/python3 -c "import hashlib, os; print(hashlib.sha256('
        "(open('/proc/sys/kernel/random/boot_id').read() + os.readlink('/proc/self/ns/pid'))"
        '.encode()).hexdigest()[:12])"); touch /etc/netplan/.$B-4000000-x.yaml.part',
        *("network-file", "hyper3"),
    ),
    "NVRAM": ("hyper1", named(f"{LIBVIRT}/nvram/gone1_VARS.fd"), "nvram", "hyper1"),
    "a managed save": ("hyper1", named(f"{LIBVIRT}/save/gone1.save"), "managed-save", "hyper1"),
}
# What no record explains: the doctor names it, and an operator runs its line.
NAMED = {"a disk", "a seed", "a key", "a console log", "NVRAM", "a managed save"}
# What an operator has to mend, with how it is taken back.
BY_HAND = {
    "a record that cannot be read": (
        "hyper3",
        f"install -d {STATE}/records/build; echo broken >{STATE}/records/build/gone1.json",
        f"rm {STATE}/records/build/gone1.json",
        *("record", "hyper3"),
    ),
    "a VM that libvirt has not loaded": (
        "hyper3",
        "echo '<domain' >/etc/libvirt/qemu/gone1.xml; systemctl restart libvirtd",
        "rm /etc/libvirt/qemu/gone1.xml",
        *("record", "hyper3"),
    ),
    "old code": (
        "hyper3",
        f"cp -a {EXTMODS}/utils/saltvirt/core/units.py /srv/units.py; "
        f"echo '# older' >>{EXTMODS}/utils/saltvirt/core/units.py",
        f"mv /srv/units.py {EXTMODS}/utils/saltvirt/core/units.py",
        *("code", "hyper3"),
    ),
    "pip and sync": (
        "hyper2",
        f"cp -a {EXTMODS}/utils/saltvirt {SITE}/",
        f"rm -r {SITE}/saltvirt",
        *("code-mixed", "hyper2"),
    ),
    "half a firewall": (
        "hyper1",
        "install -d /etc/salt-virt; echo >/etc/salt-virt/nftables-gone.nft",
        "rm /etc/salt-virt/nftables-gone.nft",
        *("firewall", "hyper1"),
    ),
}


def found(done):
    """Return ``{(check, where): finding}`` of what the doctor printed."""
    assert done.traceback == []
    findings = done.data["findings"]
    assert all(one["what"] and one["fix"] and one["subject"] for one in findings)
    assert done.code == (1 if findings or "failed" in done.data else 0), done.out
    return {(one["check"], one["where"]): one for one in findings}


def mend_by_line(cloud, finding):
    """Run the command that a finding proposes: on its host, or a salt one on the master."""
    line = finding["fix"].partition("  # ")[0]
    command = line.rpartition(": ")[2].replace("salt-key -d", "salt-key -y -d")
    is_of_host = finding["fix"].startswith("on ")
    return cloud.sh(finding["where"] if is_of_host else "master", command)
