"""The swarm's command line."""

import argparse
import json
import subprocess
import sys

from swarmkit import faults, life
from swarmkit.conf import FAULTS, HOSTS, MASTER
from swarmkit.settings import ROOT, SALTS, Spec, SwarmError, place

_HELP = """\
up HOSTS [--vms N]          bring a swarm up: a master and hosts h0000, h0001, …
down                        take it down; nothing of it stays
status                      what is up, and what it takes
salt …, salt-run …          Salt's commands on its master; salt-key, salt-call are not there
core-run …                  salt-run without this project: Salt's own runner (3006)
exec …                      any command inside
faults [JSON]               what goes wrong with hosts: show it, or set it ('[]' for nothing)
kill HOST…                  end hosts' processes; they come up again at once
off HOST…, on HOST…         end them until they are on again
stop HOST…, cont HOST…      freeze them (SIGSTOP), and let them go on
restart-master              end the master; it comes up again at once
"""


def _parser():
    parser = argparse.ArgumentParser(
        prog="swarm", description=__doc__, usage="swarm VERB …\n\n" + _HELP
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up")
    default = Spec()
    up.add_argument("hosts", type=int, help="how many hosts")
    up.add_argument("--vms", type=int, default=default.vms, help="how many VMs each has at first")
    up.add_argument("--salt", choices=SALTS, default=default.salt, help="the line of Salt")
    up.add_argument(
        "--processes",
        type=int,
        default=0,
        help="over how many the hosts are spread; without it one each up to 250, else 8",
    )
    up.add_argument("--workers", type=int, default=default.workers, help="of the master")
    up.add_argument("--vcpus", type=int, default=default.vcpus, help="that each host gives to VMs")
    up.add_argument("--memory-mib", type=int, default=default.memory_mib, help="likewise")
    up.add_argument("--disk-mib", type=int, default=default.disk_mib, help="likewise")
    up.add_argument(
        "--options",
        type=json.loads,
        default={},
        help="""Salt's, of master and hosts alike, as JSON: '{"zmq_filtering": false}'""",
    )
    for verb in ("down", "status", "restart-master"):
        verbs.add_parser(verb)
    verbs.add_parser("faults").add_argument("rules", nargs="?")
    for verb in ("kill", "off", "on", "stop", "cont"):
        verbs.add_parser(verb).add_argument("hosts", nargs="+")
    return parser


_PASSED_ON = {
    "salt": ("salt", "etc"),
    "salt-run": ("salt-run", "etc"),
    "core-run": ("salt-run", "core"),
}
_SIGNALS = {"kill": "KILL", "off": "KILL", "stop": "STOP", "cont": "CONT"}


def _passed_on(verb, words):
    """Run one of Salt's commands, or any, inside; its exit code is ours."""
    if verb == "exec":
        return subprocess.run(life.inside(place(), words), check=False).returncode
    program, config = _PASSED_ON[verb]
    return subprocess.run(life.salt(place(), program, words, config), check=False).returncode


def _up(given):
    fields = {name: value for name, value in vars(given).items() if name != "verb"}
    spec = Spec(**fields)
    if spec.hosts < 1 or spec.vms < 0:
        raise SwarmError("at least one host, and no fewer than 0 VMs")
    seconds = life.up(place(), spec)
    print(f"{spec.hosts} hosts with {spec.vms} VMs each, on Salt {spec.salt}, in {seconds:.1f} s")


def _status(_given):
    if life.pid_of(place()) is None:
        print("no swarm is up")
        return
    spec = life.spec_of(place())
    print(f"{spec.hosts} hosts with {spec.vms} VMs each at first, on Salt {spec.salt}")
    processes = len(spec.groups)
    total = sum(life.share_mib(place(), names) for names in spec.groups)
    print(f"in {processes} processes: {total:.0f} MiB, {total / spec.hosts:.1f} of a host")


def _faults(given):
    if given.rules is None:
        print(life.run(place(), ["cat", FAULTS]))
        return
    try:
        rules = faults.checked(json.loads(given.rules))
    except ValueError as wrong:
        raise SwarmError(f"faults: {wrong}") from wrong
    life.write(place(), FAULTS, json.dumps(rules))


def _hosts(given):
    groups = {name: group for group in life.spec_of(place()).groups for name in group}
    for name in given.hosts:
        if name not in groups:
            raise SwarmError(f"{name} is not a host of this swarm")
        if len(groups[name]) > 1:
            raise SwarmError(f"{name} shares its process with others; faults can silence it alone")
    for name in given.hosts:
        if given.verb == "off":
            life.run(place(), ["touch", ROOT / "off" / name])
        if given.verb == "on":
            life.run(place(), ["rm", "-f", ROOT / "off" / name])
            continue
        life.signal_from(place(), HOSTS / name / "pid", _SIGNALS[given.verb])


def _down(_given):
    print("down" if life.down(place()) else "no swarm was up")


def _restart(_given):
    life.signal_from(place(), MASTER / "pid", "TERM")


_DO = {
    "up": _up,
    "down": _down,
    "status": _status,
    "faults": _faults,
    "restart-master": _restart,
    **dict.fromkeys(("kill", "off", "on", "stop", "cont"), _hosts),
}


def main(words=None):
    """Do what the command line says; return the exit code."""
    words = sys.argv[1:] if words is None else words
    try:
        if words and words[0] in (*_PASSED_ON, "exec"):
            return _passed_on(words[0], words[1:])
        given = _parser().parse_args(words)
        if given.verb == "up" and not life.is_in_root():
            life.by_env(words)
        _DO[given.verb](given)
    except SwarmError as error:
        print(f"swarm: {error}", file=sys.stderr)
        return 1
    return 0
