"""The command ``tests/lab/lab``."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from labkit import deps, hypervisors, images, node, plain, saltd, temporary
from labkit import up as going_up
from labkit.say import say
from labkit.settings import (
    CACHE,
    LABS,
    MASTER,
    MOST_HOSTS,
    RELEASES,
    SWITCH,
    LabError,
    host,
    lab_from_environment,
)

# What is in a lab's folder and in the cache; both may be set to any folder, and are removed whole.
_NODES = ("shared", "rival", temporary.NAME, plain.NAME, SWITCH, MASTER, "hyper*")
_CACHED = (
    "layers",
    "mypy",
    "mirror",
    "env",
    "files-*",
    "*.lock",
    "*.log",
    "*-300?.recipe",
    "debian-root-*",
    "tiny-*",
    "debian-minion-*",
    "debian-plain-*",
)


def _strange(folder, patterns):
    paths = sorted(folder.iterdir()) if folder.exists() else []
    return next(
        (
            path.name
            for path in paths
            if not (path / "node.json").exists()
            and not any(fnmatch(path.name, one) for one in patterns)
        ),
        None,
    )


def _hosts(lab):
    return sorted(
        (name for name in node.alive(lab) if name.startswith("hyper")),
        key=lambda name: host(name).number,
    )


def up(lab, args):
    """Bring the lab up; what already runs stays as it is."""
    if not 1 <= args.hosts <= MOST_HOSTS:
        raise LabError(f"--hosts {args.hosts}: between 1 and {MOST_HOSTS}")
    deps.check()
    if temporary.was_left(lab):
        say(f"{lab.root}: whoever brought this lab up was killed; it is made anew")
        down(lab, args)
    plain.check_kind(lab, args.plain)
    deps.room(args.hosts + 2 - len(node.alive(lab)))
    node.mark_children(lab)
    if args.temporary:
        temporary.mark(lab)
    wanted = args.images.split(",") if args.images else []
    if args.plain:
        names = going_up.plain_up(lab, args.hosts, args.release, wanted)
        say(f"{', '.join(names)}: bare hosts; a plain master, with {plain.PROJECT}")
        return 0
    names = going_up.up(lab, args.hosts, args.release, args.fresh, wanted)
    say(f"{', '.join(names)}: hypervisors that answer")
    return 0


def bare(lab, args):
    """Add a host that nobody made a hypervisor yet: a Debian with a minion."""
    node.pid_of(lab, MASTER)
    one = host(args.node, args.release)
    if args.node in node.alive(lab):
        raise LabError(f"{args.node} is up already")
    deps.room(1)
    node.mark_children(lab)
    create = hypervisors.create_bare if plain.is_plain(lab) else hypervisors.create_quick
    create(lab, one, hypervisors.bare_stack(lab, one))
    node.power_on(lab, one.name)
    saltd.accept(lab, one.name)
    saltd.wait_until_ready(lab, [one.name])
    say(f"{one.name}: a bare host, whose key is accepted")
    return 0


def remove(lab, args):
    """End one host and forget it."""
    host(args.node)
    node.pid_of(lab, MASTER)
    node.remove(lab, args.node)
    saltd.salt(lab, "salt-run", ["virt.disallow", args.node, "force=True"], capture_output=True)
    saltd.salt(lab, "salt-key", ["-d", args.node, "-y"], capture_output=True)
    return 0


def down(lab, _args):
    """End every process of the lab and remove its folder."""
    if strange := _strange(lab.root, _NODES):
        raise LabError(f"{lab.root} is not only the lab's, as {strange} is in it: nothing removed")
    # A process that starts others may have done so since the list was made.
    while left := node.leftovers(lab):
        node.kill(left)
    if lab.root.exists():
        for folder in sorted(lab.root.iterdir()):
            if (folder / "node.json").exists():
                node.clear(lab, folder.name)
        shutil.rmtree(lab.root)
    say("down: no process, namespace, mount or interface is left")
    return 0


def purge(lab, args):
    """Take the lab down, and empty the cache."""
    if strange := _strange(CACHE, _CACHED):
        raise LabError(f"{CACHE} is not only the lab's, as {strange} is in it: nothing removed")
    if others := node.labs() - {str(lab.root)}:
        raise LabError(f"the cache is in use, by the lab in {', '.join(sorted(others))}: lab down")
    down(lab, args)
    if CACHE.exists():
        shutil.rmtree(CACHE)
    if LABS.exists() and not list(LABS.iterdir()):
        LABS.rmdir()
    say(f"purged: {CACHE} is gone")
    return 0


def status(lab, _args):
    """Print one line for each node; exit 0 only if all that should run does."""
    pids = node.alive(lab)
    if not pids:
        print("the lab is down")
        return 1
    hosts = _hosts(lab)
    answering = saltd.answering(lab, hosts) if MASTER in pids and hosts else []
    good = {SWITCH, MASTER} <= set(pids) and answering == hosts
    print(f"{'node':8} {'address':10} {'Debian':9} {'network':15} {'systemd':9} minion")
    for name in [SWITCH, MASTER, *hosts]:
        if name in pids:
            said = _systemd_state(pids[name])
            good = good and said in ("running", "starting")
            print(_row(lab, name, said, answering if name in hosts else None))
    return 0 if good else 1


def _systemd_state(pid):
    argv = node.enter(pid, ["systemctl", "is-system-running"])
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _row(lab, name, said, answering):
    """Return a node's line; ``answering`` is None of those that have no minion of a host."""
    if answering is None:
        return f"{name:8} {'':10} {'':9} {'':15} {said:9} -"
    one, release = host(name), node.about(lab, name)["release"]
    minion = "answers" if name in answering else "silent"
    return f"{name:8} {one.address:10} {release:9} {one.network:15} {said:9} {minion}"


def env(lab, _args):
    """Print the paths, addresses and command prefixes in use as JSON."""
    out = {"root": str(lab.root), "salt": lab.salt, "images": str(lab.images), "nodes": {}}
    for name, pid in sorted(node.alive(lab).items()):
        out["nodes"][name] = {
            "pid": pid,
            "files": f"/proc/{pid}/root",
            "console": str(lab.node_dir(name) / "console"),
        }
    for name in _hosts(lab):
        socket = f"{out['nodes'][name]['files']}/run/libvirt/libvirt-sock"
        out["nodes"][name].update(
            address=host(name).address, uri=f"qemu+unix:///system?socket={socket}"
        )
    print(json.dumps(out, indent=2))
    return 0


def execute(lab, args):
    """Run a command inside a node."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise LabError(f"exec {args.node}: which command?")
    argv = node.enter(node.pid_of(lab, args.node), words)
    return subprocess.run(argv, check=False).returncode


def salt(lab, args):
    """Run salt, salt-run, salt-key or salt-call as its users do."""
    return saltd.salt(lab, args.verb, args.command).returncode


def salt_call(lab, args):
    """Run salt-call on a host."""
    argv = node.enter(node.pid_of(lab, args.node), ["salt-call", *args.command])
    return subprocess.run(argv, check=False).returncode


def service(lab, args):
    """Start, stop or restart a unit of a node, as systemctl does."""
    argv = node.enter(node.pid_of(lab, args.node), ["systemctl", args.action, args.name])
    return subprocess.run(argv, check=False).returncode


def reboot(lab, args):
    """Reboot a node; return when systemd has started all."""
    node.reboot(lab, args.node)
    node.wait_until_started(lab, args.node)
    return 0


def crash(lab, args):
    """Cut a node's power for a moment; what was not written to its disk is lost."""
    node.crash(lab, args.node)
    node.wait_until_started(lab, args.node)
    return 0


def off(lab, args):
    """Shut a node down; it stays off."""
    node.power_off(lab, args.node)
    return 0


def on(lab, args):
    """Power a node on again."""
    if args.node in node.alive(lab):
        raise LabError(f"{args.node} is on")
    node.mark_children(lab)
    node.power_on(lab, args.node)
    node.wait_until_started(lab, args.node)
    return 0


def cut(lab, args):
    """Pull a node's network cable."""
    node.cut(lab, args.node)
    return 0


def join(lab, args):
    """Plug a node's network cable in again."""
    node.cut(lab, args.node, is_cut=False)
    return 0


def console(lab, args):
    """Print what a node has said on its console."""
    path = lab.node_dir(args.node) / "console"
    if not path.exists():
        raise LabError(f"{args.node} has never booted")
    sys.stdout.write(path.read_text(errors="replace"))
    return 0


def sync(lab, _args):
    """Bring the checkout's modules to the running master and minions."""
    plain.refuse(lab, "sync")
    saltd.sync(lab, _hosts(lab))
    return 0


def build(lab, args):
    """Build the images the lab serves, those whose recipe changed."""
    deps.check()
    images.known(args.names)
    node.mark_children(lab)
    images.ensure(lab, args.names or list(images.RECIPES))
    return 0


def _add_up(verbs):
    verb = verbs.add_parser("up", help="bring the lab up (idempotent)")
    verb.add_argument("--hosts", type=int, default=3, help="how many hypervisors (default 3)")
    verb.add_argument(
        "--images",
        default=",".join(images.RECIPES),
        help="which images to have ready, comma separated (default: all; empty: none)",
    )
    verb.add_argument("--release", choices=RELEASES, help="of all hosts (default: 12, 12, 13)")
    verb.add_argument("--fresh", action="store_true", help="keep and use no work of earlier times")
    verb.add_argument(
        "--plain",
        action="store_true",
        help="a master and bare hosts with plain Salt: docs/quickstart.md begins there",
    )
    verb.add_argument(
        "--temporary",
        action="store_true",
        help="of the calling process: if that ends without down, the next up makes it anew",
    )
    verb.set_defaults(do=up)


def parser():
    """Return the command line."""
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    top.add_argument("--salt", help="Salt line: 3008 (default) or 3006", default=None, dest="line")
    verbs = top.add_subparsers(dest="verb", required=True)
    _add_up(verbs)
    for name, do, text in (
        ("down", down, "end and remove everything"),
        ("purge", purge, "down, and empty the cache"),
        ("status", status, "what runs"),
        ("env", env, "paths, addresses and ports as JSON"),
        ("sync", sync, "bring changed modules to the running lab"),
    ):
        verbs.add_parser(name, help=text).set_defaults(do=do)
    verb = verbs.add_parser("exec", help="run a command inside a node")
    verb.add_argument("node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb.set_defaults(do=execute)
    for name, do, text in (
        ("bare", bare, "add a host that is not a hypervisor yet"),
        ("remove", remove, "end one host and forget it"),
        ("reboot", reboot, "reboot a node"),
        ("crash", crash, "cut a node's power for a moment"),
        ("off", off, "shut a node down"),
        ("on", on, "power a node on again"),
        ("cut", cut, "pull a node's network cable"),
        ("join", join, "plug it in again"),
        ("console", console, "what a node has said on its console"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("node")
        if name == "bare":
            verb.add_argument("--release", choices=RELEASES, help="(default: by its number)")
        verb.set_defaults(do=do)
    for name in ("salt", "salt-run", "salt-key"):
        verb = verbs.add_parser(name, help=f"{name} on the lab's master", add_help=False)
        verb.add_argument("command", nargs=argparse.REMAINDER)
        verb.set_defaults(do=salt)
    verb = verbs.add_parser("salt-call", help="salt-call on a host", add_help=False)
    verb.add_argument("node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb.set_defaults(do=salt_call)
    verb = verbs.add_parser("service", help="start, stop or restart a unit of a node")
    verb.add_argument("node")
    verb.add_argument("name")
    verb.add_argument("action", choices=["start", "stop", "restart", "status"])
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
    if at is None or argv[at - 1] in ("--hosts", "--images", "--release"):
        return top.parse_args(argv)
    nodes = 1 if argv[at] in ("exec", "salt-call") else 0
    args = top.parse_args(argv[: at + 1 + nodes])
    args.command = argv[at + 1 + nodes :]
    return args


def _must_be_a_node(lab, args):
    """Raise LabError if a verb is about a node that was never made; a name may be a path, too."""
    name = getattr(args, "node", None)
    if name is None:
        return
    if Path(name).name == name and (lab.node_dir(name) / "node.json").exists():
        return
    if name not in (SWITCH, MASTER):
        host(name)
    if args.do is not bare:
        raise LabError(f"{name} was never made: lab up, or lab bare")


def main():
    """Run one verb; print one line and exit 1 if it cannot be done."""
    args = parse(sys.argv[1:])
    try:
        deps.must_be_root()
        lab = lab_from_environment(args.line)
        _must_be_a_node(lab, args)
        return args.do(lab, args)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Threads may be waiting for what they build: it is ended with this process.
        print("lab: interrupted; lab down takes away what is up", file=sys.stderr, flush=True)
        os._exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
