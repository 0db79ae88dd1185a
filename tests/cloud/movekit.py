"""What the tests of moving VMs have in common; the VM is ``m1``."""

import json
import re
import time

from cloudkit import TINY, ticks, wait

# What hosts have on record.
RECORDS = "find /var/lib/salt-virt/records -name '*.json' 2>/dev/null || true"
# A move's own pools; the formula's is called default.
POOLS = "(virsh -q pool-list --all --name | grep -vxE '(default)? *' || true)"


def begin_m1(cloud):
    """Deploy the VM on hyper1, and wait until its guest counts on its console."""
    done = cloud.run("virt.init", "m1", "1", "96", TINY, "host=hyper1", "wait=False", "seed=False")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud, "hyper1", "m1") > 2)


def end_m1(cloud, before):
    """Purge the VM, after which there is what there was before it."""
    purged = cloud.run("virt.purge", "m1")
    try:
        assert purged.code == 0, purged.out
        assert cloud.traces() == before
    finally:
        cloud.purge_all()


def where(cloud, name="m1"):
    """Return ``{host: state}`` of a VM as every libvirtd sees it."""
    out = {}
    for host in cloud.hosts:
        listed = cloud.sh(host, "virsh -q list --all")
        for line in listed.splitlines():
            if line.split()[1] == name:
                out[host] = " ".join(line.split()[2:])
    return out


def move(cloud, *words):
    """Move a VM and return the runner's answer."""
    done = cloud.run("virt.migrate", "m1", *words)
    assert done.code == 0, done.out + done.err
    return done.data


def numbers(cloud, host):
    """Return what the guest's counter has printed on this host."""
    return [int(n) for n in re.findall(r"TICK (\d+) ", cloud.console(host, "m1"))]


def unfetchable(cloud, host):
    """Have a host's images come from where the file server has none: hosts must send them."""
    for path in cloud.sh(host, "ls /srv/salt-images/base/*.json").split():
        note = json.loads(cloud.sh(host, f"cat {path}"))
        note["source"] = "salt://images/no-such.qcow2"
        new = f"cat > {path}.new <<'X'\n{json.dumps(note)}\nX\nmv {path}.new {path}"
        cloud.sh(host, new)


def slow(cloud):
    """Begin a move of the VM to hyper2 that takes long, and wait until bytes flow."""
    job = cloud.begin("virt.migrate", "m1", "hyper2", "max_bandwidth=1")
    wait(
        "the move",
        lambda: "Migration" in cloud.sh("hyper1", "virsh domjobinfo m1 2>&1 || true")
        or "Unbounded" in cloud.sh("hyper1", "virsh domjobinfo m1 2>&1 || true"),
    )
    time.sleep(1)
    return job


def stays(cloud, job, why):
    """Check that a move ended with a reason, the VM where it was, nothing on the target."""
    done = cloud.end(job)
    assert done.code == 1, done.out
    assert why in done.error, done.error
    wait("the VM on its host", lambda: where(cloud) == {"hyper1": "running"})
    assert "m1" not in cloud.sh("hyper2", "ls /srv/salt-images")
    for host in cloud.hosts:
        assert cloud.sh(host, f"{POOLS}; {RECORDS}") == ""
    count = ticks(cloud, "hyper1", "m1")
    wait("the counter", lambda: ticks(cloud, "hyper1", "m1") > count)


def hasten(cloud):
    """Let a slow move go on as fast as it can, to its end."""
    # What is said while disks travel is forgotten when the memory's turn comes.
    cloud.sh(
        "hyper1",
        "for n in $(seq 200); do virsh -q migrate-setspeed m1 500 || break; "
        "sleep 0.2; virsh domjobinfo m1 | grep -q None && break; done 2>&1; true",
    )
