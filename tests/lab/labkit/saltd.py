"""The lab's salt-master and salt-minions."""

import json
import subprocess

from labkit import node
from labkit.run import run, wait_for
from labkit.settings import CHECKOUT, LabError

MASTER = """\
interface: {ip}
user: root
root_dir: {dir}
pki_dir: {dir}/etc/pki/master
cachedir: {dir}/cache
sock_dir: {dir}/run
pidfile: {dir}/master.pid
log_file: {dir}/log
log_level: error
log_level_logfile: info
key_logfile: {dir}/keylog
worker_threads: 4
fileserver_list_cache_time: 1
# Two labs may share two processors.
timeout: 30
virt: {{timeout_s: 20, wait_s: 600}}
file_roots:
  base: [{dir}/srv, {checkout}, {fileroot}]
pillar_roots:
  base: [{dir}/pillar]
"""
MINION = """\
id: {name}
master: {ip}
user: root
root_dir: {dir}
pki_dir: {dir}/etc/pki/minion
cachedir: {dir}/cache
sock_dir: {dir}/run
pidfile: {dir}/minion.pid
log_file: {dir}/log
log_level: error
log_level_logfile: info
acceptance_wait_time: 1
random_reauth_delay: 1
recon_default: 200
recon_max: 1000
enable_fqdns_grains: False
enable_gpu_grains: False
minion_jid_queue_hwm: 100
disable_modules: [systemd_service]
"""
DNSMASQ = [
    "dnsmasq", "--conf-file=/dev/null", "--interface=segment", "--bind-interfaces",
    "--except-interface=lo", "--port=0", "--no-ping", "--user=root",
    "--dhcp-range=10.77.100.1,10.77.199.254,255.255.0.0,12h", "--dhcp-option=3,10.77.0.1",
]  # fmt: skip


def _folder(lab, name):
    return lab.node_dir(name) / "salt"


def _running(pid, program):
    return program in node.inside(pid, ["ps", "-A", "-ww", "-o", "args="])


def start_master(lab, pid):
    """Start the salt-master and the guests' DHCP server."""
    folder = _folder(lab, "master")
    for part in ("etc/pki/master/minions", "srv", "pillar", "etc/master.d"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    lab.fileroot.mkdir(parents=True, exist_ok=True)
    text = MASTER.format(ip=lab.master_ip, dir=folder, checkout=CHECKOUT, fileroot=lab.fileroot)
    (folder / "etc/master").write_text(text)
    if not _running(pid, "dnsmasq"):
        leases = [f"--dhcp-leasefile={folder}/leases", f"--pid-file={folder}/dnsmasq.pid"]
        node.inside(pid, [*DNSMASQ, *leases])
    if not _running(pid, "bin/salt-master"):
        argv = [f"{lab.venv}/bin/salt-master", "-c", lab.master_conf]
        node.spawn(lab, "master", pid, argv, folder / "out")


def accept_minion(lab, host):
    """Make a host's minion key and accept it on the master beforehand."""
    keys = _folder(lab, host) / "etc/pki/minion"
    keys.mkdir(parents=True, exist_ok=True)
    private, public = keys / "minion.pem", keys / "minion.pub"
    if not private.exists():
        run(["openssl", "genrsa", "-out", private, "2048"])
        private.chmod(0o400)
        run(["openssl", "rsa", "-in", private, "-pubout", "-out", public])
    accepted = _folder(lab, "master") / "etc/pki/master/minions"
    accepted.mkdir(parents=True, exist_ok=True)
    (accepted / host).write_text(public.read_text())


def write_minion(lab, host, capacity_mib):
    """Write a minion's configuration: Salt's own part and the lab's ``virt:`` options."""
    folder = _folder(lab, host)
    (folder / "etc/minion.d").mkdir(parents=True, exist_ok=True)
    text = MINION.format(name=host, ip=lab.master_ip, dir=folder)
    (folder / "etc/minion").write_text(text)
    # The hosts share one machine's memory and disk: each may hand out its own part of it.
    capacity = {"memory_mib": capacity_mib, "disk_mib": 100 * 1024}
    # Looking into an image takes half a minute here; the tests of that ask for it.
    seed = {"method": "nocloud", "bootstrap": "/srv/bootstrap.sh"}
    virt = {"virt": {"capacity": capacity, "reserve_mib": 0, "seed": seed}}
    (folder / "etc/minion.d/virt.conf").write_text(json.dumps(virt) + "\n")


def start_minion(lab, host, pid):
    """Start a host's salt-minion, if it does not run."""
    folder = _folder(lab, host)
    if not _running(pid, "bin/salt-minion"):
        argv = [f"{lab.venv}/bin/salt-minion", "-c", lab.minion_conf(host)]
        node.spawn(lab, host, pid, argv, folder / "out")


def salt(lab, pids, program, args, **options):
    """Run a Salt command on the master's node; return the completed process."""
    argv = [lab.venv / "bin" / program, "-c", lab.master_conf, *args]
    return subprocess.run(node.enter(pids["master"], argv), check=False, **options)


def answering(lab, pids, hosts):
    """Return which of these minions answer a ping."""
    args = ["-L", ",".join(hosts), "test.ping", "-t", "5", "--out=json", "--static"]
    done = salt(lab, pids, "salt", args, capture_output=True, text=True)
    start = done.stdout.find("{")
    if start < 0:
        return []
    found = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
    return [host for host in hosts if found.get(host) is True]


def wait_until_ready(lab, pids, hosts):
    """Wait until the master runs and every host's minion answers."""
    wait_for(
        f"an answer from {', '.join(hosts)}",
        lambda: len(answering(lab, pids, hosts)) == len(hosts),
        timeout_s=180,
        every_s=0.5,
    )


def sync(lab, pids, hosts):
    """Bring the checkout's modules to the master and the minions, as a user would."""
    for program, args in (
        ("salt-run", ["saltutil.sync_all", "--out=quiet"]),
        ("salt", ["-L", ",".join(hosts), "saltutil.sync_all", "-t", "60", "--out=quiet"]),
    ):
        done = salt(lab, pids, program, args, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"{program} {args}: {done.stdout}{done.stderr}")
