"""
Faults of hosts, from a file that is read at each job: a list of rules, tried in order.

A rule has ``host`` and ``fun``, patterns of what it is about (all, without them), ``chance``, from
0 to 1, that it happens to a job (1, without it), and what happens:

``silent``
    The host hears of no job.
``latency_s``
    Each way takes so long.
``lost``
    It does the job, and its answer never arrives.
``slow_s``
    It is at the job for so long before it begins.
``error``
    The function fails with this text.
``libvirt``
    ``{call: text}``: those calls of libvirt's fail, such as ``create`` or ``defineXML``.
"""

import json
import os
import random
from fnmatch import fnmatchcase

from swarmkit.conf import FAULTS

NONE = {}
KINDS = {"silent", "latency_s", "lost", "slow_s", "error", "libvirt"}
_KNOWN = {"host", "fun", "chance", *KINDS}
_seen = {"stamp": None, "rules": []}


def checked(rules):
    """Return rules; raise ValueError if one could never mean anything."""
    for rule in rules:
        unknown = set(rule) - _KNOWN
        if unknown or not KINDS & set(rule):
            raise ValueError(f"a rule has {sorted(_KNOWN)}, and one of {sorted(KINDS)}: {rule}")
    return rules


def of(host, fun, jid):
    """Return what happens to a job of a host: the first rule that fits, or nothing."""
    found = os.stat(FAULTS)
    stamp = (found.st_mtime_ns, found.st_ino)
    if stamp != _seen["stamp"]:
        _seen.update(stamp=stamp, rules=checked(json.loads(FAULTS.read_text())))
    for number, rule in enumerate(_seen["rules"]):
        is_it = fnmatchcase(host, rule.get("host", "*")) and fnmatchcase(fun, rule.get("fun", "*"))
        # Of a job, a host and a rule it is always the same.
        luck = random.Random(f"{jid} {host} {number}")
        if is_it and luck.random() < rule.get("chance", 1):
            return rule
    return NONE
