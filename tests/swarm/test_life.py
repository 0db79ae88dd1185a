"""
A life of a cloud: random commands, many at once, killed in mid-step; clocks jump, hosts die.

After each operation the laws of ``lifelaws`` are read from the hosts. At the end of each part of it
what was interrupted is settled, and nothing may be left over.
"""

import json
import time

import pytest
from conftest import swarm_of
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from lifelaws import Fates, always, at_rest
from swarmkit import conf, faults, life
from swarmkit.settings import Spec
from test_load import IMAGE, IMAGES

HOSTS = [f"h{number:04d}" for number in range(5)]
NAMES = [f"vm-{letter}" for letter in "abcdefgh"]
# A host has room for three of them.
MEMORY_MIB, ROOM_MIB = 256, 3 * 256 + 100
# A job that was killed is waited for so long: "timeout_s", then this for its answer.
RETURN_S = 2
SHORT_TIMES = {
    "timeout": 5,
    "gather_job_timeout": 2,
    "virt": {"timeout_s": 5, "hypervisors": "h[0-9]*"},
}
# As many commands may be under way at once.
AT_ONCE = 3
# What a killed command may leave, and the next one settles.
SETTLED = {"unfinished", "half-move", "order", "lock", "mark", "download", "pool"}
_HOUR_S = 3600
_QUIET_S, _JOB_S = 90, 5


@pytest.fixture(scope="module")
def living():
    """Five hosts without VMs, and a process beside their master."""
    spec = Spec(hosts=len(HOSTS), vms=0, memory_mib=ROOM_MIB, options=SHORT_TIMES)
    with swarm_of(spec, "l") as it:
        it.sh('mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M', IMAGES)
        it.warm.do("hurry", return_s=RETURN_S)
        yield it, it.warm


hosts = st.sampled_from(HOSTS)
# Every fourth command is killed, at any moment of it.
ends = st.one_of(st.none(), st.none(), st.none(), st.floats(0.05, 1.5).map(lambda s: round(s, 2)))
# How often each is done beside the others.
OPERATIONS = [
    *["init"] * 5,
    *["migrate"] * 4,
    *["power"] * 3,
    *["evacuate", "purge"] * 2,
    *["restore"] * 3,
    *["settle", "kill_job", "kill_job", "kill_host", "jump", "weather"],
]
# What goes wrong with one job of three, until the next change of weather.
WEATHERS = [
    [],
    [{"libvirt": {"create": "injected: no start"}}],
    [{"libvirt": {"defineXML": "injected: no definition"}}],
    [{"libvirt": {"migrate": "injected: no move"}}],
    [{"libvirt": {"target": "injected: no way there"}}],
    [{"fun": "virt.migrate_*", "error": "injected: the host is upset"}],
    [{"fun": "virt.init", "error": "injected: the host is upset"}],
    [{"fun": "virt.init", "slow_s": 1}, {"fun": "virt.purge", "slow_s": 1}],
    [{"fun": "virt.migrate*", "slow_s": 0.5}],
]


class Life(RuleBasedStateMachine):
    """The operations, and the laws after each."""

    swarm = warm = None
    operations, most, moves = 0, 0, 0

    def __init__(self):
        super().__init__()
        self._under_way, self._fates, self._step = [], Fates(), 0
        # Until something is wrong; a part that begins when all is lived through does nothing.
        self._is_well = not self._is_over
        self._looked_at = -1

    @property
    def _is_over(self):
        return self.operations >= self.most

    # The operations.

    @initialize()
    def begin(self):
        """Begin with a few VMs."""
        if self._is_over:
            return
        self._await_quiet()
        self.warm.do("reset")
        print("a life begins")
        for number in range(1, AT_ONCE + 1):
            self._init(number, None, {"beside": True})

    def _run(self, *words, beside, kill_s=None):
        asked = self.warm.begin(*words, kill_s=kill_s)
        self._said(" ".join(map(str, words)), f"killed after {kill_s} s" if kill_s else "")
        self._under_way.append(asked)
        if not beside or len(self._under_way) >= AT_ONCE:
            self._end_all()

    def _said(self, *what):
        type(self).operations += 1
        print(f"{self.operations}:", *what)

    def _end_all(self):
        for asked in self._under_way:
            answer = asked.wait()
            type(self).moves += asked.words[1] == "virt.migrate" and answer["code"] == 0
            how = f"{answer['code']} after {answer.get('seconds')} s"
            print(f"  {how}: {' '.join(asked.words[1:4])} {_error(answer)}")
            assert "Traceback" not in answer["err"] + answer["out"], answer["out"] + answer["err"]
        self._under_way = []

    @rule(
        number=st.integers(0, 9999),
        host=st.one_of(st.none(), hosts),
        kill_s=ends,
        beside=st.booleans(),
    )
    def operate(self, number, host, kill_s, beside):
        """Do one operation; ``beside`` is whether the next one begins while it is under way."""
        if self._is_over:
            return
        # What hypothesis begins with, the same again and again, are different ones here.
        self._step += 1
        number += 13 * self._step
        what, how = _one(OPERATIONS, number), {"kill_s": kill_s, "beside": beside}
        getattr(self, f"_{what}")(number=number // len(OPERATIONS), host=host, how=how)

    def _init(self, number, host, how):
        # Now and then one that is there already.
        free = [name for name in NAMES if name not in self._fates.alive]
        name = _one(free if free and number % 10 else NAMES, number)
        self._fates.tried("init", name)
        where = () if host is None or number % 3 else (f"host={host}",)
        options = ("seed_method=nocloud", "wait=False", "headroom=False")
        self._run("virt.init", name, 1, MEMORY_MIB, IMAGE, *options, *where, **how)

    def _purge(self, number, host, how):
        name = self._alive(number)
        self._fates.tried("purge", name)
        self._run("virt.purge", name, **how)

    def _alive(self, number):
        return _one(self._fates.alive or NAMES, number)

    def _power(self, number, host, how):
        verb = _one(("start", "stop", "pause", "resume"), number)
        self._run(f"virt.{verb}", self._alive(number // 4), **how)

    def _migrate(self, number, host, how):
        self._run("virt.migrate", self._alive(number), *filter(None, [host]), **how)

    def _evacuate(self, number, host, how):
        self._run("virt.evacuate", host or _one(HOSTS, number), "wait_s=5", **how)

    def _restore(self, number, host, how):
        self._run("virt.restore", host or _one(HOSTS, number), **how)

    def _settle(self, number, host, how):
        self._run("virt.settle", **how)

    def _kill_job(self, number, host, how):
        if not self._under_way:
            self._migrate(number, host, {"beside": True})
        end = time.monotonic() + _JOB_S
        while not self.warm.do("jobs") and time.monotonic() < end:
            time.sleep(0.02)
        # At any moment of it.
        time.sleep(number % 8 / 40)
        self._said("kill the job", self.warm.do("kill_job", number=number))

    def _kill_host(self, number, host, how):
        host = host or _one(HOSTS, number)
        self._said("kill", host)
        self.warm.do("kill", host=host)

    def _jump(self, number, host, how):
        hours = _one((-30, -1, 0, 1, 30, 9000), number)
        self._said("the clock of", host or "the master", "is ahead by", hours, "h")
        self.warm.do("jump", who=host or "master", by_s=hours * _HOUR_S)

    def _weather(self, number, host, how):
        which = _one(WEATHERS, number)
        self._said("weather", json.dumps(which))
        self._let_fail([{"chance": 0.33, **one} for one in which])

    def _let_fail(self, rules):
        life.write(self.swarm.place, conf.FAULTS, json.dumps(faults.checked(rules)))

    # The laws.

    @invariant()
    def holds(self):
        """Read the laws from the hosts."""
        if self._is_over and self._looked_at in (-1, self.operations):
            return
        self._looked_at = self.operations
        self._is_well = False
        self._read_laws()
        self._is_well = True

    def _read_laws(self):
        seen = self.warm.do("look")
        self._refuse(always(seen, ROOM_MIB))
        if self._under_way:
            return
        if seen["jobs"]:
            # Of a command that was killed: what it is at is not at rest.
            return
        self._judge(seen)

    def _judge(self, seen):
        self._refuse([*at_rest(seen), *self._fates.wrong(seen, NAMES)])
        for host, name, uuid in self._fates.unmarked(seen):
            digest = self.warm.do("mark", host=host, name=name, number=self.operations)
            self._fates.marked(name, uuid, digest)

    def _refuse(self, wrong):
        wrong = list(wrong)
        assert not wrong, "\n".join(wrong)

    def _await_quiet(self):
        end = time.monotonic() + _QUIET_S
        while self.warm.do("jobs"):
            assert time.monotonic() < end, f"jobs go on for {_QUIET_S} s"
            time.sleep(0.1)

    def teardown(self):
        """Settle all; nothing may be left over, of any age."""
        if not self._is_well:
            for asked in self._under_way:
                asked.wait()
            return
        self._end_all()
        self._let_fail([])
        self._await_quiet()
        self.swarm.wait_for(self.swarm.spec.ids)
        self._judge(self.warm.do("look"))
        self._ended("virt.settle")
        found = self._ended("virt.doctor", "fix=True", is_bad=True)
        checks = {one["check"] for one in found.get("findings", ())}
        assert not checks, f"after virt.doctor fix=True: {found}"
        for who in ("master", *self.swarm.spec.ids):
            self.warm.do("jump", who=who, by_s=9 * _HOUR_S)
        self._ended("virt.doctor")
        seen = self.warm.do("look")
        self._judge(seen)
        left = [one for one in seen["orders"] if one["purpose"] not in ("evacuated", "undo")]
        self._refuse(f"still on record: {one}" for one in left)

    def _ended(self, *words, is_bad=False):
        answer = self.warm.begin(*words).wait()
        print(f"  {answer['code']}: {' '.join(words)} {' '.join(answer['out'].split())}")
        assert is_bad or answer["code"] == 0, answer["out"] + answer["err"]
        start = answer["out"].find("{")
        return json.JSONDecoder().raw_decode(answer["out"][start:])[0] if start >= 0 else {}


def _error(answer):
    """Return what a command has said of its failure, on one line."""
    if answer["code"] == 0:
        return ""
    return " ".join((answer["out"][-400:] or answer["err"][-400:]).split())


def _one(several, number):
    return several[number % len(several)]


def lived(living, most, each, **options):
    """Live through so many operations in parts of so many; return how many there were."""
    swarm, warm = living

    class Here(Life):
        pass

    Here.swarm, Here.warm, Here.most = swarm, warm, most
    run_state_machine_as_test(
        Here,
        settings=settings(
            # Hypothesis may leave out one of the parts.
            max_examples=most // each + 1,
            stateful_step_count=each,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )
    assert Here.moves, "no virt.migrate has moved a VM"
    return Here.operations


def test_a_life_of_200_operations(living):
    assert lived(living, 200, 100, derandomize=True) >= 200


# 32 minutes beside little else.
@pytest.mark.timeout(7200)
@pytest.mark.nightly
def test_a_life_of_2000_operations(living):
    assert lived(living, 2000, 100) >= 2000
