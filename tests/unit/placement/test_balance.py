"""Which moves even out a cloud: a pure function, tried with whole clouds."""

import random
from dataclasses import replace

import pytest
import told
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.placement import balance, choose, load, whatif
from saltvirt.placement.answers import Load, VmLoad
from sizes import sizes
from tightclouds import host, moving


def by_name(*vms):
    """Return facts by their VM's name."""
    return {vm.name: vm for vm in vms}


def busy(**vms):
    """Return the load of a host of 10 CPUs: ``{name: CPUs used}``."""
    loads_by_name = {name: VmLoad(cpu=cpu, memory_mib=0) for name, cpu in vms.items()}
    return Load(cpus=10, memory_mib=100000, vms=loads_by_name)


def lopsided():
    """Return hosts, loads and VMs of a cloud in which one host has all the load."""
    loads = {"a": busy(v1=3, v2=2, v3=2, v4=1), "b": busy(), "c": busy()}
    hosts = {name: host(100000) for name in loads}
    vms = by_name(*[moving(name, 100) for name in loads["a"].vms])
    for name, facts in vms.items():
        hosts["a"] = whatif.with_vm(hosts["a"], whatif.needs_of_move(facts))
        assert name in hosts["a"].vms
    return hosts, loads, vms


def shares(loads, steps):
    """Return each host's CPUs in use after the steps."""
    cpus_by_host = {
        name: sum(vm.cpu for vm in host_load.vms.values()) for name, host_load in loads.items()
    }
    for step in steps:
        used = loads[step.source].vms[step.name].cpu
        cpus_by_host[step.source] -= used
        cpus_by_host[step.target] += used
    return cpus_by_host


def test_a_lopsided_cloud_is_evened_out_with_few_moves():
    hosts, loads, vms = lopsided()

    steps = balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.01)

    assert sorted(shares(loads, steps).values()) == [2, 3, 3]
    assert len(steps) <= 3 and all(step.gain > 0.01 for step in steps)
    assert steps == balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.01)


def test_no_more_moves_are_made_than_asked_for_and_none_that_gains_too_little():
    hosts, loads, vms = lopsided()

    assert len(balance.rebalance(hosts, loads, vms, max_moves=1, threshold=0.01)) == 1
    assert balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.9) == []
    even = {name: busy() for name in loads}
    assert balance.rebalance(hosts, even, vms, max_moves=9, threshold=0.0) == []


def test_a_vm_that_is_tagged_or_cannot_move_stays_and_maintenance_is_honoured():
    hosts, loads, vms = lopsided()
    vms["v1"] = told.but(vms["v1"], stay=True)
    vms["v2"] = told.but(vms["v2"], obstacles=["it has a device of this host"])
    hosts["b"] = told.but(hosts["b"], maintenance=True)

    steps = balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.01)

    assert {step.name for step in steps} <= {"v3", "v4"}
    assert {step.target for step in steps} == {"c"}


def test_a_host_that_has_refused_a_vm_is_not_planned_for_it_again():
    hosts, loads, vms = lopsided()
    first = balance.rebalance(hosts, loads, vms, max_moves=1, threshold=0.01)[0]
    refused = {first.name: {"b": ["its CPU does not suffice"], "c": ["the same"]}}

    steps = balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.01, refused=refused)

    assert steps and first.name not in {step.name for step in steps}


def test_a_move_that_costs_more_than_it_gains_is_not_made():
    hosts, loads, vms = lopsided()
    vms = {name: told.but(facts, memory_mib=1024 * 2000) for name, facts in vms.items()}
    hosts = {
        name: told.but(host_info, memory={"limit_mib": 10**9}) for name, host_info in hosts.items()
    }

    assert balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.0) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=5))
def test_every_step_evens_out_and_no_vm_moves_twice(cpus):
    loads = {
        f"h{n}": busy(**{f"v{n}{k}": cpu for k, cpu in enumerate(row)})
        for n, row in enumerate(cpus)
    }
    hosts = {name: host(100000) for name in loads}
    vms = by_name(*[moving(vm, 10) for host_load in loads.values() for vm in host_load.vms])

    steps = balance.rebalance(hosts, loads, vms, max_moves=20, threshold=0.001)

    assert len({step.name for step in steps}) == len(steps)
    before, used = balance.imbalance(loads), shares(loads, steps)
    after = balance.imbalance({name: busy(all=cpu) for name, cpu in used.items()})
    assert after <= before


def hosts_with(vms_of, limit_mib=100_000, **host_options):
    """Return ``(hosts, vms)`` of hosts with these VMs: ``{host: {name: options}}``."""
    hosts, vms = {}, {}
    for name, vm_options in vms_of.items():
        hosts[name] = host(limit_mib, **host_options)
        for vm, options in vm_options.items():
            vms[vm] = moving(vm, 10, **options)
            hosts[name] = whatif.with_vm(hosts[name], whatif.needs_of_move(vms[vm]))
    return hosts, vms


def carry_out(hosts, vms, steps):
    """Make the steps one after the other; each must pass the check of virt.migrate."""
    for step in steps:
        required = whatif.needs_of_move(vms[step.name])
        other_hosts = {name: host_info for name, host_info in hosts.items() if name != step.source}
        evaluations = {v.host: v for v in choose.evaluate(other_hosts, required)}
        assert evaluations[step.target].fits, (step, evaluations[step.target].reasons)
        hosts = {
            **hosts,
            step.source: whatif.without_vm(hosts[step.source], required),
            step.target: whatif.with_vm(hosts[step.target], required),
        }


def test_migrate_accepts_every_step():
    draw, step_count = random.Random(5), 0
    for _cloud in range(150):
        hosts = {f"h{n}": host(100) for n in range(draw.randint(3, 6))}
        loads, vms = {name: busy() for name in hosts}, {}
        for number in range(draw.randint(4, 16)):
            groups = {"affinity": [draw.choice("ab")]} if draw.random() < 0.4 else {}
            groups = groups or (
                {"anti_affinity": [draw.choice("xy")]} if draw.random() < 0.5 else {}
            )
            vm = moving(f"v{number}", draw.choice([5, 10, 20]), **groups)
            host_name, required = draw.choice(list(hosts)), whatif.needs_of_move(vm)
            # VMs of a group may be on the wrong hosts already, from before they were in it.
            if not choose.evaluate({host_name: hosts[host_name]}, required)[0].fits:
                continue
            if draw.random() < 0.1:
                coming = {"c": {"affinity": ["a"], "anti_affinity": ["x"]}}
                hosts[host_name] = told.but(hosts[host_name], coming=coming)
            hosts[host_name] = whatif.with_vm(hosts[host_name], required)
            vms[vm.name] = vm
            cpu = draw.choice([0, 0.1, 0.5, 1, 2])
            loads[host_name].vms[vm.name] = VmLoad(cpu=cpu, memory_mib=0, cpu_error=0.0)
        steps = balance.rebalance(hosts, loads, vms, max_moves=10, threshold=0.02)
        carry_out(hosts, vms, steps)
        step_count += len(steps)
    assert step_count > 200


def test_idle_hosts_that_can_take_no_vm_do_not_keep_others_from_taking_some():
    hosts, vms = hosts_with({"x0": {f"v{n}": {} for n in range(8)}, "x1": {}, "x2": {}})
    hosts |= {f"arm{n:02}": host(10**6, archs=["aarch64"]) for n in range(20)}
    loads = {name: busy() for name in hosts}
    loads["x0"] = busy(**{name: 1.2 for name in vms})
    loads["x1"] = busy(z=0.1)

    steps = balance.rebalance(hosts, loads, vms, max_moves=5, threshold=0.02)

    assert steps and {step.target for step in steps} == {"x1", "x2"}


def test_hosts_whose_vms_stay_do_not_keep_others_from_moving_theirs():
    tagged = {f"p{n}": {f"v{n}{k}": {"stay": True} for k in range(5)} for n in range(6)}
    hosts, vms = hosts_with({**tagged, "busy": {f"w{k}": {} for k in range(5)}, "idle": {}})
    loads = {name: busy(**dict.fromkeys(host_info.vms, 1.9)) for name, host_info in hosts.items()}
    loads["busy"] = busy(**{f"w{k}": 1.8 for k in range(5)})

    steps = balance.rebalance(hosts, loads, vms, max_moves=5, threshold=0.02)

    assert steps and {step.source for step in steps} == {"busy"}


def test_full_hosts_that_are_idle_do_not_keep_others_from_taking():
    hosts, vms = hosts_with({"a": {f"v{n}": {} for n in range(4)}, "z": {}})
    hosts |= {f"full{n:02}": host(5) for n in range(20)}
    loads = {name: busy() for name in hosts}
    loads["a"], loads["z"] = busy(**dict.fromkeys(vms, 2.0)), busy(other=0.5)
    for host_load in (loads["a"], loads["z"]):
        host_load.vms.update(
            {name: replace(vm, cpu_error=0.1) for name, vm in host_load.vms.items()}
        )

    steps = balance.rebalance(hosts, loads, vms, max_moves=5, threshold=0.02)

    assert steps and {step.target for step in steps} == {"z"}


def test_a_vm_on_its_way_is_left_alone():
    hosts, vms = hosts_with({"a": {"v1": {}, "v2": {}}, "b": {}, "c": {}})
    hosts["b"] = told.but(hosts["b"], building=["v1"], coming={"v1": {}})
    loads = {"a": busy(v1=4, v2=4), "b": busy(), "c": busy()}

    steps = balance.rebalance(hosts, loads, vms, max_moves=5, threshold=0.02)

    assert {step.name for step in steps} == {"v2"}


def test_earlier_steps_count_for_later_ones():
    hosts, loads, vms = lopsided()
    first, *later_steps = balance.rebalance(hosts, loads, vms, max_moves=9, threshold=0.01)

    later_steps_again = balance.rebalance(
        hosts, loads, vms, max_moves=9, threshold=0.01, done_steps=[first]
    )

    assert later_steps_again == later_steps


class Simulated:
    """Hosts of ten CPUs with VMs that are busy at random; their load is read as by a runner."""

    def __init__(self, seed, busy_s, vms=20, hosts=10):
        self._draw, self._busy_s = random.Random(seed), busy_s
        names = {f"h{n}": {f"v{n}_{k}": {} for k in range(vms)} for n in range(hosts)}
        self.hosts, self.vms = hosts_with(names)
        self.part = dict.fromkeys(self.vms, 0.1)
        self._is_busy = {name: self._draw.random() < 0.1 for name in self.vms}

    def _second(self, name):
        # The VM is busy for so many seconds on average, and idle long enough to meet its part.
        part = self.part[name]
        leave = 1 / self._busy_s
        enter = leave * part / (1 - part)
        if self._draw.random() < (leave if self._is_busy[name] else enter):
            self._is_busy[name] = not self._is_busy[name]
        return 1.0 if self._is_busy[name] else 0.02

    def _reading(self, seconds):
        cpu_by_vm = {
            name: sum(self._second(name) for _ in range(seconds)) / seconds for name in self.vms
        }
        return {
            host: busy(**{vm: cpu_by_vm[vm] for vm in host_info.vms})
            for host, host_info in self.hosts.items()
        }

    def run(self, readings=12, seconds=5):
        """Rebalance once and make the steps; return them."""
        loads_by_reading = [self._reading(seconds) for _ in range(readings)]
        loads = {
            host: load.average([loads_of_reading[host] for loads_of_reading in loads_by_reading])
            for host in self.hosts
        }
        steps = balance.rebalance(self.hosts, loads, self.vms, max_moves=5, threshold=0.02)
        for step in steps:
            required = whatif.needs_of_move(self.vms[step.name])
            self.hosts[step.source] = whatif.without_vm(self.hosts[step.source], required)
            self.hosts[step.target] = whatif.with_vm(self.hosts[step.target], required)
        return steps


@sizes(quick=10, full=50)
@pytest.mark.parametrize("busy_s", [1, 5, 15])
def test_an_even_cloud_is_left_alone(busy_s, size):
    cloud = Simulated(seed=busy_s, busy_s=busy_s)

    assert [step for _run in range(size) for step in cloud.run()] == []


def test_a_cloud_that_is_uneven_is_evened_out_in_spite_of_chance():
    cloud = Simulated(seed=3, busy_s=2)
    cloud.part |= {name: 0.3 for name in cloud.hosts["h0"].vms}

    def expected(host):
        return sum(cloud.part[name] for name in cloud.hosts[host].vms)

    before = expected("h0")
    steps = [step for _run in range(10) for step in cloud.run()]

    assert before == pytest.approx(6) and expected("h0") < 5
    assert {step.source for step in steps} == {"h0"}


def test_the_error_of_a_mean_covers_persistent_load():
    alternating, persistent = [0, 1] * 10, [0] * 10 + [1] * 10

    assert load.standard_error([1.0] * 5) == 0.0 and load.standard_error([1.0, 2.0]) is None
    assert load.standard_error(persistent) > 1.5 * load.standard_error(alternating) > 0


def test_readings_are_averaged():
    first_load = Load(cpus=8, memory_mib=64, vms={"a": VmLoad(cpu=1.0, memory_mib=5)})
    second_load = replace(first_load, vms={**first_load.vms, "b": VmLoad(cpu=3.0, memory_mib=5)})
    vms = {"a": VmLoad(cpu=2.0, memory_mib=7), "c": VmLoad(cpu=1, memory_mib=1)}
    last_load = replace(first_load, vms=vms)

    average = load.average([first_load, second_load, last_load])

    common_vm = average.vms["a"]
    assert common_vm.memory_mib == 7
    assert (common_vm.cpu, common_vm.cpu_error) == (pytest.approx(4 / 3), pytest.approx(1 / 3))
    assert average.vms["c"] == VmLoad(cpu=1, memory_mib=1)
    assert set(average.vms) == {"a", "c"} and average.cpus == 8


def test_the_error_of_a_host_covers_vms_that_are_busy_together():
    readings = [busy(**dict.fromkeys("abcd", cpu)) for cpu in (0.0, 1.0, 0.0, 1.0, 0.0, 1.0)]

    average = load.average(readings)

    assert average.cpu_error == pytest.approx(4 * average.vms["a"].cpu_error)
    assert (
        load.Loads({"h": average}).surely("h")[1]
        > 0.2 + 4 * 0.4 * average.vms["a"].cpu_error - 1e-9
    )


@sizes(quick=20, full=1_000)
def test_cached_host_values_give_the_same_steps_as_a_full_evaluation(size):
    longest = 0
    for seed in range(size):
        hosts, loads, vms = uneven_cloud(random.Random(seed))
        limits = {"max_moves": 12, "threshold": 0.005}

        steps = balance.rebalance(hosts, loads, vms, **limits)

        expected_steps = []
        while len(expected_steps) < limits["max_moves"]:
            next_limits = {**limits, "max_moves": 1, "done_steps": expected_steps}
            if not (next_step := balance.rebalance(hosts, loads, vms, **next_limits)):
                break
            expected_steps += next_step
        assert steps == expected_steps, seed
        carry_out(hosts, vms, steps)
        longest = max(longest, len(steps))
    assert longest > 6


def uneven_cloud(draw):
    """Return hosts of some sizes, tags and makes, with groups and two kinds of load."""
    host_sizes = [
        draw.choice([(10, 100), (20, 100), (10, 200)]) for _ in range(draw.randint(3, 24))
    ]
    hosts, loads, vms = {}, {}, {}
    is_alike = draw.random() < 0.5
    for number, (cpus, memory_mib) in enumerate(host_sizes):
        name = f"h{number}"
        hosts[name] = host(60, tags={"rack": draw.choice("rst")}, maintenance=draw.random() < 0.1)
        loads[name] = Load(
            cpus=10 if is_alike else cpus, memory_mib=100 if is_alike else memory_mib, vms={}
        )
    for number in range(draw.randint(5, 60)):
        kind = draw.random()
        vm_groups = {"affinity": ["a"]} if kind < 0.05 else {}
        if 0.1 < kind < 0.3:
            vm_groups = {"anti_affinity": [draw.choice(["x", "y@rack"])]}
        bridges = ["br0"] if draw.random() < 0.3 else []
        vm = moving(f"v{number}", draw.choice([5, 10, 20]), bridges=bridges, **vm_groups)
        host_name, required = f"h{draw.randrange(1 + len(hosts) // 2)}", whatif.needs_of_move(vm)
        if choose.evaluate({host_name: hosts[host_name]}, replace(required, bridges=()))[0].fits:
            hosts[host_name] = whatif.with_vm(hosts[host_name], required)
            vms[vm.name] = vm
            cpu, used = draw.choice([0, 0.2, 0.5, 1]), draw.choice([0, 5, 10])
            loads[host_name].vms[vm.name] = VmLoad(cpu=cpu, memory_mib=used, cpu_error=0.0)
    for name in draw.sample(list(hosts), len(hosts) // 3):
        hosts[name] = told.but(hosts[name], bridges=[])
    return hosts, loads, vms
