"""The command ``tests/lab/lab``."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from labkit import deps, hypervisor, images, network, node, saltd
from labkit.say import say
from labkit.settings import LabError, lab_from_environment


def _hosts(count):
    return [f"hyper{n}" for n in range(1, count + 1)]


def _pid(lab, name):
    pids = node.alive(lab)
    if name not in pids:
        raise LabError(f"{name} is not up (up: {', '.join(sorted(pids)) or 'nothing'}): lab up")
    return pids[name]


def _capacity_mib(hosts):
    with open("/proc/meminfo", encoding="ascii") as handle:
        total_kib = int(handle.readline().split()[1])
    return total_kib // 1024 * 3 // 4 // hosts


def _bring_up_host(lab, host, pids, capacity_mib):
    pid = pids[host]
    hypervisor.prepare(lab, host, pid)
    network.join_segment(lab, host, pid, pids["master"])
    hypervisor.start_libvirtd(lab, host, pid)
    saltd.write_minion(lab, host, capacity_mib)
    saltd.start_minion(lab, host, pid)


def up(lab, args):
    """Bring the lab up; what already runs stays as it is."""
    if args.hosts < 1 or args.hosts > 32:
        raise LabError(f"--hosts {args.hosts}: between 1 and 32")
    deps.install_packages()
    deps.install_salt(lab)
    images.ensure(lab, args.images.split(",") if args.images else [])
    pids = node.alive(lab)
    wanted = ["master", *_hosts(args.hosts)]
    fresh = [name for name in wanted if name not in pids]
    if not fresh:
        say(f"already up: {', '.join(wanted)}")
    node.mark_children(lab)
    lab.root.mkdir(parents=True, exist_ok=True)
    lab.root.chmod(0o700)
    for name in fresh:
        pids[name] = node.start(lab, name)
    hypervisor.prepare(lab, "master", pids["master"])
    network.make_segment(lab, pids["master"])
    are_bare = {name for name in pids if (lab.node_dir(name) / "bare").exists()}
    hosts = sorted((set(pids) | set(wanted)) - {"master"} - are_bare)
    for host in hosts:
        saltd.accept_minion(lab, host)
    saltd.start_master(lab, pids["master"])
    with ThreadPoolExecutor() as pool:
        share = _capacity_mib(len(hosts))
        list(pool.map(lambda host: _bring_up_host(lab, host, pids, share), hosts))
    say(f"namespaces, bridges and libvirtd are up: {', '.join(hosts)}")
    saltd.wait_until_ready(lab, pids, hosts)
    saltd.sync(lab, pids, hosts)
    say(f"salt-master and {len(hosts)} minions answer, modules are synced")
    return 0


def bare(lab, args):
    """Add a host that nobody made a hypervisor yet: a minion, an eth0, packages as they come."""
    pids = node.alive(lab)
    if args.node in pids:
        raise LabError(f"{args.node} is up already")
    node.mark_children(lab)
    pid = node.start(lab, args.node)
    hypervisor.prepare(lab, args.node, pid, hypervisor.BARE)
    (lab.node_dir(args.node) / "bare").touch()
    network.plug_in(lab, args.node, pid, _pid(lab, "master"))
    saltd.accept_minion(lab, args.node)
    saltd.write_minion(lab, args.node, _capacity_mib(4))
    saltd.start_minion(lab, args.node, pid)
    saltd.wait_until_ready(lab, node.alive(lab), [args.node])
    return 0


def remove(lab, args):
    """End one host and forget it."""
    node.kill([_pid(lab, args.node)])
    shutil.rmtree(lab.node_dir(args.node))
    saltd.salt(lab, node.alive(lab), "salt-key", ["-d", args.node, "-y"], capture_output=True)
    return 0


def down(lab, _args):
    """End every process of the lab and remove its folder."""
    # A process that starts others may have done so since the list was made.
    while left := node.leftovers(lab):
        node.kill(left)
    if lab.root.exists():
        shutil.rmtree(lab.root)
    say("down: no process, namespace, mount or interface is left")
    return 0


def status(lab, _args):
    """Print one line for each node; exit 0 only if all that should run does."""
    pids = node.alive(lab)
    if not pids:
        print("the lab is down")
        return 1
    hosts = sorted(set(pids) - {"master"})
    answering = saltd.answering(lab, pids, hosts) if "master" in pids else []
    print(f"{'node':10} {'address':12} {'process':>8}  {'libvirtd':8}  minion")
    good = "master" in pids
    if good:
        print(f"{'master':10} {lab.master_ip:12} {pids['master']:>8}  {'-':8}  -")
    for host in hosts:
        libvirtd = "answers" if hypervisor.is_answering(pids[host]) else "silent"
        minion = "answers" if host in answering else "silent"
        good = good and libvirtd == minion == "answers"
        print(f"{host:10} {lab.host_ip(host):12} {pids[host]:>8}  {libvirtd:8}  {minion}")
    return 0 if good else 1


def env(lab, _args):
    """Print the paths, addresses and command prefixes in use as JSON."""
    pids = node.alive(lab)
    hosts = {}
    for host in sorted(set(pids) - {"master"}):
        root = f"/proc/{pids[host]}/root"
        hosts[host] = {
            "address": lab.host_ip(host),
            "tls_port": 16514,
            "pid": pids[host],
            "libvirt_socket": f"{root}/run/libvirt/libvirt-sock",
            "uri": f"qemu+unix:///system?socket={root}/run/libvirt/libvirt-sock",
            "consoles": str(lab.node_dir(host) / "log/libvirt/qemu"),
            "images": str(lab.node_dir(host) / "srv/salt-images"),
            "minion_log": str(lab.node_dir(host) / "salt/log"),
        }
    print(
        json.dumps(
            {
                "root": str(lab.root),
                "salt": lab.salt,
                "venv": str(lab.venv),
                "master": {
                    "address": lab.master_ip,
                    "ports": [4505, 4506],
                    "pid": pids.get("master"),
                    "config": str(lab.master_conf),
                    "file_root": str(lab.node_dir("master") / "salt/srv"),
                    "pki": str(lab.master_conf / "pki/master"),
                    "log": str(lab.node_dir("master") / "salt/log"),
                },
                "images": str(lab.fileroot / "images"),
                "hosts": hosts,
            },
            indent=2,
        )
    )
    return 0


def execute(lab, args):
    """Run a command inside a node."""
    return subprocess.run(node.enter(_pid(lab, args.node), args.command), check=False).returncode


def salt(lab, args):
    """Run salt, salt-run, salt-key or salt-call as its users do."""
    _pid(lab, "master")
    return saltd.salt(lab, node.alive(lab), args.verb, args.command).returncode


def salt_call(lab, args):
    """Run salt-call on a host."""
    argv = [lab.venv / "bin/salt-call", "-c", lab.minion_conf(args.node), *args.command]
    return subprocess.run(node.enter(_pid(lab, args.node), argv), check=False).returncode


def service(lab, args):
    """Start or stop one daemon of a node: libvirtd, salt-minion or salt-master."""
    pid = _pid(lab, args.node)
    program = {"libvirtd": "libvirtd"}.get(args.name, f"bin/{args.name}")
    if args.action == "stop":
        hypervisor.stop(pid, program)
    elif args.name == "libvirtd":
        hypervisor.start_libvirtd(lab, args.node, pid)
    elif args.name == "salt-minion":
        saltd.start_minion(lab, args.node, pid)
    else:
        saltd.start_master(lab, pid)
    return 0


def sync(lab, _args):
    """Bring the checkout's modules to the running master and minions."""
    pids = node.alive(lab)
    _pid(lab, "master")
    saltd.sync(lab, pids, sorted(set(pids) - {"master"}))
    return 0


def build(lab, args):
    """Build the images the lab serves, those whose recipe changed."""
    deps.install_packages()
    deps.install_salt(lab)
    images.ensure(lab, args.names or list(images.RECIPES))
    return 0


def parser():
    """Return the command line."""
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    top.add_argument("--salt", help="Salt line: 3008 (default) or 3006", default=None, dest="line")
    verbs = top.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("up", help="bring the lab up (idempotent)")
    verb.add_argument("--hosts", type=int, default=3, help="how many hypervisors (default 3)")
    verb.add_argument(
        "--images",
        default=",".join(images.RECIPES),
        help="which images to have ready, comma separated (default: all; empty: none)",
    )
    verb.set_defaults(do=up)
    for name, do, text in (
        ("down", down, "end and remove everything"),
        ("status", status, "what runs"),
        ("env", env, "paths, addresses and ports as JSON"),
        ("sync", sync, "bring changed modules to the running lab"),
    ):
        verbs.add_parser(name, help=text).set_defaults(do=do)
    verb = verbs.add_parser("exec", help="run a command inside a node")
    verb.add_argument("node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb.set_defaults(do=execute)
    for name, do, text in (("bare", bare, "add a host that is no hypervisor yet"),
                           ("remove", remove, "end one host and forget it")):  # fmt: skip
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("node")
        verb.set_defaults(do=do)
    for name in ("salt", "salt-run", "salt-key"):
        verb = verbs.add_parser(name, help=f"{name} on the lab's master", add_help=False)
        verb.add_argument("command", nargs=argparse.REMAINDER)
        verb.set_defaults(do=salt)
    verb = verbs.add_parser("salt-call", help="salt-call on a host", add_help=False)
    verb.add_argument("node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb.set_defaults(do=salt_call)
    verb = verbs.add_parser("service", help="start or stop a daemon of a node")
    verb.add_argument("node")
    verb.add_argument("name", choices=["libvirtd", "salt-minion", "salt-master"])
    verb.add_argument("action", choices=["start", "stop"])
    verb.set_defaults(do=service)
    verb = verbs.add_parser("images", help="build the images (those whose recipe changed)")
    verb.add_argument("names", nargs="*")
    verb.set_defaults(do=build)
    return top


PASSED_ON = ("salt", "salt-run", "salt-key", "salt-call", "exec")


def parse(argv):
    """Parse the command line; everything behind a passed-on verb is the other program's."""
    top = parser()
    at = next((n for n, word in enumerate(argv) if word in PASSED_ON), None)
    if at is None or argv[at - 1] in ("--hosts", "--images"):
        return top.parse_args(argv)
    nodes = 1 if argv[at] in ("exec", "salt-call") else 0
    args = top.parse_args(argv[: at + 1 + nodes])
    args.command = argv[at + 1 + nodes :]
    return args


def main():
    """Run one verb; print one line and exit 1 if it cannot be done."""
    args = parse(sys.argv[1:])
    try:
        lab = lab_from_environment(args.line)
        return args.do(lab, args)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
