"""The lab's salt-master and salt-minions: as Salt's packages leave them, and what the docs say."""

import json
import shutil
import subprocess

from labkit import node, onedir, roots
from labkit.run import wait_for
from labkit.settings import CHECKOUT, MASTER, MASTER_IP, SWITCH_IP, LabError

# What a Salt master serves of this project; the rest is of no use to it.
SERVED = (
    "_clouds",
    "_engines",
    "_grains",
    "_modules",
    "_output",
    "_pillar",
    "_runners",
    "_states",
    "_utils",
    "hypervisor",
)
PROJECT = "srv/salt-virt"
_FROM_DOCS = "file_roots:\n  base: [/srv/salt, /srv/salt-virt]\n"
_MASTER = """\
log_level_logfile: info
fileserver_list_cache_time: 1
# Two labs may share two processors.
timeout: 30
# As docs/security.md says; virt.audit finds nothing.
minimum_auth_version: 3
zmq_filtering: True
virt: {timeout_s: 20, wait_s: 600}
"""
MINION = """\
log_level_logfile: info
acceptance_wait_time: 1
random_reauth_delay: 1
recon_default: 200
recon_max: 1000
enable_fqdns_grains: False
enable_gpu_grains: False
minion_jid_queue_hwm: 100
"""
# In /proc/net/tcp: port 4505, and a connection that stands.
_PUBLISHED, _ESTABLISHED = ":1199", "01"
_NETWORK = f"""\
[Match]
Name=eth0
[Network]
Address={MASTER_IP}/16
Gateway={SWITCH_IP}
"""


def master_stack(lab):
    """Return the root of the master."""
    return [onedir.layer(lab.salt), *roots.base("bookworm")]


def create_master(lab, stack):
    """Make the master, which has not booted yet."""
    lab.images.mkdir(parents=True, exist_ok=True)
    seed = create_plain_master(lab, stack, plugs(lab))
    serve(seed)
    node.write(
        seed,
        {
            "etc/salt/master.d/virt.conf": _FROM_DOCS,
            "etc/salt/master.d/lab.conf": _MASTER,
            "srv/pillar/top.sls": "base: {}\n",
        },
    )


def create_plain_master(lab, stack, plugged):
    """Make a master as Salt's packages leave it, which has not booted yet; return its folder."""
    seed = node.create(lab, MASTER, stack, **plugged)
    node.write(
        seed,
        {
            "etc/salt/master": "user: salt\n",
            "etc/systemd/network/10-eth0.network": _NETWORK,
            "first-boot": "systemctl -q enable systemd-networkd salt-master\n"
            "systemctl -q mask systemd-networkd-wait-online\n",
            **node.identity(MASTER),
        },
    )
    return seed


def plugs(lab):
    """Return the master's network card, and the images that it serves."""
    return {
        "link": {"name": MASTER, "mac": "52:54:00:77:00:01"},
        "shares": [(str(lab.images), "/srv/salt/images", "ro")],
    }


def serve(folder):
    """Put the project, as it is in the checkout, where the master serves it."""
    target = folder / PROJECT
    shutil.rmtree(target, ignore_errors=True)
    for name in SERVED:
        shutil.copytree(
            CHECKOUT / name,
            target / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def pillar(lab, hosts):
    """Write the hypervisors' pillar, as docs/add-a-hypervisor.md says."""
    folder = node.root(lab, MASTER) / "srv/pillar"
    top = {name: [name] for name in hosts}
    (folder / "top.sls").write_text(json.dumps({"base": top}))
    for name, text in hosts.items():
        (folder / f"{name}.sls").write_text(json.dumps(text))


def salt(lab, program, args, **options):
    """Run a Salt command on the master's node; return the completed process."""
    argv = node.enter(node.pid_of(lab, MASTER), [program, *args])
    return subprocess.run(argv, check=False, **options)


def accept(lab, name):
    """Accept a host's key, as its administrator does."""
    pki = node.root(lab, MASTER) / "etc/salt/pki/master"

    def is_accepted():
        # A master that is just answering the host may write its key as one that waits once more.
        if (pki / "minions_pre" / name).exists():
            salt(lab, "salt-key", ["-y", "-a", name], capture_output=True)
            return False
        return (pki / "minions" / name).exists()

    wait_for(f"the key of {name}", is_accepted, timeout_s=120, every_s=0.5)


def answering(lab, hosts):
    """Return which of these minions answer a ping."""
    args = ["-L", ",".join(hosts), "test.ping", "-t", "5", "--out=json", "--static"]
    done = salt(lab, "salt", args, capture_output=True, text=True)
    start = done.stdout.find("{")
    if start < 0:
        return []
    found = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
    return [one for one in hosts if found.get(one) is True]


def is_connected(lab, name):
    """Return whether a host's minion has subscribed to what the master publishes."""
    rows = (node.root(lab, name) / "proc/1/net/tcp").read_text().splitlines()[1:]
    peers = [(row.split()[2], row.split()[3]) for row in rows]
    return any(peer.endswith(_PUBLISHED) and state == _ESTABLISHED for peer, state in peers)


def wait_until_ready(lab, hosts):
    """Wait until the master runs and every host's minion answers."""
    # A ping that one of them has missed would be waited for: some 15 seconds.
    for name in hosts:
        wait_for(f"the minion of {name}", lambda name=name: is_connected(lab, name), timeout_s=180)
    wait_for(
        f"an answer from {', '.join(hosts)}",
        lambda: len(answering(lab, hosts)) == len(hosts),
        timeout_s=180,
        every_s=0.3,
    )


def must(lab, program, *args):
    """Run a Salt command that has to succeed; return what it printed."""
    done = salt(lab, program, args, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{program} {' '.join(args)}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.stdout


def apply(lab, hosts, sls, timeout_s=600):
    """Apply an SLS to hosts; raise LabError that names every state that failed, and why."""
    words = ["-L", ",".join(hosts), "-t", str(timeout_s), "state.apply", sls]
    done = salt(lab, "salt", [*words, "--out=json", "--static"], capture_output=True, text=True)
    start = done.stdout.find("{")
    found = json.JSONDecoder().raw_decode(done.stdout[start:])[0] if start >= 0 else {}
    failed = [f"{name}: no answer" for name in hosts if name not in found]
    for name, states in found.items():
        if not isinstance(states, dict):
            failed.append(f"{name}: {states}")
            continue
        failed += [
            f"{name}: {one.get('__id__')}: {one['comment'].strip().splitlines()[-1]}"
            for one in states.values()
            if one["result"] is False
        ]
    if failed:
        raise LabError(f"state.apply {sls}:\n" + "\n".join(failed))


def sync(lab, hosts):
    """Bring the checkout's modules to the master and the minions, as a user would."""
    serve(node.root(lab, MASTER))
    must(lab, "salt-run", "saltutil.sync_all", "--out=quiet")
    must(lab, "salt", "-L", ",".join(hosts), "saltutil.sync_all", "-t", "60", "--out=quiet")
