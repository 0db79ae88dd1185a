"""Which host takes a VM, and in which order the others are tried."""

from saltvirt.errors import NoHostFits
from saltvirt.model import Verdict
from saltvirt.placement import fit

WEIGHTS = {"memory": 1.0, "cpu": 1.0, "disk": 0.5}


def judge(hosts, need, weights=None):
    """
    Return a verdict for every host, the best first; equal ones by name.

    hosts
        ``{host: answer of virt.host_info}``.
    weights
        Overrides of ``{"memory": 1.0, "cpu": 1.0, "disk": 0.5}``.
    """
    together = _hosts_of_groups(hosts, need)
    verdicts = []
    for name, host in hosts.items():
        why = fit.reasons(host, need)
        if together and name not in together:
            groups = ", ".join(need.affinity)
            why.append(f"the affinity group {groups} is on {', '.join(sorted(together))}")
        score = _score(host, need, {**WEIGHTS, **(weights or {})}) if not why else 0.0
        verdicts.append(Verdict(host=name, reasons=tuple(why), score=score))
    return _ranked(verdicts)


def _ranked(verdicts):
    return sorted(verdicts, key=lambda v: (not v.fits, -v.score, v.host))


def overruled(verdicts, late):
    """
    Return the verdicts, the best first, once hosts were asked themselves.

    late
        ``{host: reasons}`` of those that refused.
    """
    late = {host: Verdict(host=host, reasons=tuple(why)) for host, why in late.items()}
    return _ranked([late.get(v.host, v) if v.fits else v for v in verdicts])


def choose(hosts, need, weights=None):
    """Return the verdicts of the hosts that fit, the best first, or raise NoHostFits."""
    verdicts = judge(hosts, need, weights)
    fitting = [verdict for verdict in verdicts if verdict.fits]
    if not fitting:
        raise NoHostFits(need, {v.host: "; ".join(v.reasons) for v in verdicts})
    return fitting


def _hosts_of_groups(hosts, need):
    wanted = set(need.affinity)
    return {
        name
        for name, host in hosts.items()
        if any(wanted & set(vm["affinity"]) for vm in host["vms"].values())
    }


def _score(host, need, weights):
    left = fit.free(host)
    parts = {
        "memory": (left["memory_mib"] - need.memory_mib, host["memory"]["limit_mib"]),
        "cpu": (left["vcpus"] - need.vcpus, host["cpu"]["vcpus_limit"]),
        "disk": (left["disk_mib"] - need.disk_mib, host["storage"]["limit_mib"]),
    }
    shares = {key: max(0.0, rest / limit) if limit else 0.0 for key, (rest, limit) in parts.items()}
    total = sum(weights[key] for key in parts) or 1.0
    return sum(weights[key] * share for key, share in shares.items()) / total
