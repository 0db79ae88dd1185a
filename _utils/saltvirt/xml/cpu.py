"""<vcpu>, <vcpus>, <cpu>, <cputune>, <iothreads>."""

from saltvirt.arguments import refuse_unknown_keys, vcpus
from saltvirt.units import size_kib
from saltvirt.xml import tag, yes_no

_KEYS = {
    "placement", "cpuset", "current", "maximum", "vcpus", "match", "mode", "check", "vendor",
    "model", "topology", "cache", "features", "numa", "tuning", "iothreads",
}  # fmt: skip
_TUNING = {
    "vcpupin", "emulatorpin", "iothreadpin", "shares", "period", "quota", "global_period",
    "global_quota", "emulator_period", "emulator_quota", "iothread_period", "iothread_quota",
    "vcpusched", "iothreadsched", "emulatorsched", "cachetune", "memorytune",
}  # fmt: skip


def elements(cpu, domain_type):
    """Return the elements that a number of CPUs or a ``cpu`` mapping leads to."""
    if not isinstance(cpu, dict):
        return [tag("vcpu", text=cpu), _cpu({}, domain_type)]
    refuse_unknown_keys("cpu", cpu, _KEYS)
    attributes = {key: cpu.get(key) for key in ("placement", "cpuset", "current")}
    return [
        tag("vcpu", attributes, text=vcpus(cpu)),
        _vcpus(cpu.get("vcpus")),
        tag("iothreads", text=cpu["iothreads"]) if cpu.get("iothreads") else None,
        _tuning(cpu.get("tuning")),
        _cpu(cpu, domain_type),
    ]


def _vcpus(listed):
    if not listed:
        return None
    rows = [
        tag(
            "vcpu",
            {
                "id": number,
                "enabled": yes_no(state.get("enabled")),
                "hotpluggable": yes_no(state.get("hotpluggable")),
                "order": state.get("order"),
            },
        )
        for number, state in sorted(listed.items(), key=lambda item: int(item[0]))
    ]
    return tag("vcpus", None, *rows)


def _cpu(cpu, domain_type):
    # Migratable by default: the host's model under KVM; all that TCG emulates otherwise.
    mode = cpu.get("mode")
    if not mode and not cpu.get("model"):
        mode = "host-model" if domain_type == "kvm" else "maximum"
    model = cpu.get("model")
    if model and not isinstance(model, dict):
        model = {"name": model}
    cache = cpu.get("cache")
    topology = cpu.get("topology")
    return tag(
        "cpu",
        {"mode": mode, "match": cpu.get("match"), "check": cpu.get("check")},
        model
        and tag(
            "model",
            {"fallback": model.get("fallback"), "vendor_id": model.get("vendor_id")},
            text=model.get("name"),
        ),
        tag("vendor", text=cpu["vendor"]) if cpu.get("vendor") else None,
        tag("topology", {"sockets": 1, "cores": 1, "threads": 1, **topology}) if topology else None,
        tag("cache", cache) if cache else None,
        *[
            tag("feature", {"policy": policy, "name": name})
            for name, policy in sorted((cpu.get("features") or {}).items())
        ],
        _numa(cpu.get("numa")),
    )


def _numa(cells):
    if not cells:
        return None
    return tag(
        "numa",
        None,
        *[
            tag(
                "cell",
                {
                    "id": number,
                    "cpus": cell.get("cpus"),
                    "memory": size_kib(cell["memory"], f"cpu:numa:{number}:memory"),
                    "unit": "KiB",
                    "memAccess": cell.get("memAccess"),
                    "discard": yes_no(cell.get("discard")),
                },
                _distances(cell.get("distances")),
            )
            for number, cell in sorted(cells.items(), key=lambda item: int(item[0]))
        ],
    )


def _distances(distances):
    if not distances:
        return None
    rows = [tag("sibling", {"id": to, "value": far}) for to, far in sorted(distances.items())]
    return tag("distances", None, *rows)


def _sched(name, rule, members):
    out = {"scheduler": rule.get("scheduler"), "priority": rule.get("priority")}
    return tag(name, {members: rule.get(members), **out} if members else out)


def _tuning(tuning):
    if not tuning:
        return None
    refuse_unknown_keys("cpu:tuning", tuning, _TUNING)
    numbers = ("shares", "period", "quota", "global_period", "global_quota", "emulator_period",
               "emulator_quota", "iothread_period", "iothread_quota")  # fmt: skip
    pins = [
        *_pins("vcpupin", "vcpu", tuning.get("vcpupin")),
        tag("emulatorpin", {"cpuset": tuning["emulatorpin"]}) if "emulatorpin" in tuning else None,
        *_pins("iothreadpin", "iothread", tuning.get("iothreadpin")),
    ]
    scheds = [
        *[_sched("vcpusched", rule, "vcpus") for rule in tuning.get("vcpusched", ())],
        *[_sched("iothreadsched", rule, "iothreads") for rule in tuning.get("iothreadsched", ())],
        *[_sched("emulatorsched", rule, None) for rule in tuning.get("emulatorsched", ())],
    ]
    return tag(
        "cputune",
        None,
        *[tag(key, text=tuning[key]) for key in numbers if tuning.get(key) is not None],
        *pins,
        *scheds,
        *[_cachetune(*item) for item in (tuning.get("cachetune") or {}).items()],
        *[_memorytune(*item) for item in (tuning.get("memorytune") or {}).items()],
    )


def _pins(name, key, pins):
    return [tag(name, {key: number, "cpuset": cpuset}) for number, cpuset in (pins or {}).items()]


def _cachetune(members, rules):
    caches = [
        tag(
            "cache",
            {"id": number, "level": rule["level"], "type": rule["type"],
             "size": size_kib(rule["size"], "cpu:tuning:cachetune:size"), "unit": "KiB"},
        )
        for number, rule in rules.items()
        if number != "monitor"
    ]  # fmt: skip
    monitors = [
        tag("monitor", {"vcpus": watched, "level": level})
        for watched, level in (rules.get("monitor") or {}).items()
    ]
    return tag("cachetune", {"vcpus": members}, *caches, *monitors)


def _memorytune(members, nodes):
    rows = [tag("node", {"id": node, "bandwidth": width}) for node, width in nodes.items()]
    return tag("memorytune", {"vcpus": members}, *rows)
