"""
Whoever dies at a phase boundary of a build or a move: the next command settles it.

A cell is a kind of VM, a boundary and who dies there. Those of SAMPLE are run each time, on one
line of Salt each; all others are nightly. tests/cloud/test_faults.py has the builder's own death
at each of its boundaries, and what a purge leaves.
"""

from types import SimpleNamespace

import faultkit as kit
import pytest
from cloudkit import ticks, wait
from faultkit import BUILD, INIT_ORDER, MOVE_ORDER, PAIR, SOURCE, TARGET, VM

INIT = (*kit.INIT, kit.DISKS.format(8))

# Who has died takes the guest with it, if it runs there.
_CUTS = ("qemu", "crash", "reboot")
# Whose death a runner notices only after a while; elsewhere whoever waits for it does so no longer.
_SILENT = ("job", "crash", "reboot")
WAITED = {
    "live departure.before-handing job",
    "live departure.sending source-crash",
    "stopped departure.handing target-reboot",
    "stopped arrival.ready job",
}
# From here on it is the target that runs the VM.
_OVER_THERE = ("before-leaving", "leaving", "departure.end", "before-arrived", "arrived", ".end")
SAMPLE = {
    "live arrival.arrived job": 1,
    "live departure.handing qemu": 1,
    "stopped departure.sending job": 2,
    "stopped departure.handing source-reboot": 1,
    "stopped arrival.arrived target-crash": 1,
    "stopped order.moving runner": 2,
    "stopped departure.before-leaving source-libvirtd": 2,
    "build order.keyed runner": 2,
    "build build.making libvirtd": 1,
}


def _moves():
    for kind in ("stopped", "live"):
        for point in (*SOURCE, *TARGET):
            yield kind, point, "job"
            yield kind, point, "runner"
            for who in ("libvirtd", "crash", "reboot"):
                yield kind, point, f"source-{who}"
                yield kind, point, f"target-{who}"
            if kind == "live":
                yield kind, point, "qemu"
        for point in MOVE_ORDER:
            yield kind, point, "runner"


def _builds():
    for point in BUILD:
        for who in ("runner", "libvirtd", "reboot"):
            yield "build", point, who
        if point not in ("build.defining", "build.complete", "build.end"):
            yield "build", point, "crash"
    yield "build", "build.end", "qemu"
    for point in INIT_ORDER:
        yield "build", point, "runner"


def _cells(rows):
    out = []
    for row in rows:
        name = " ".join(row)
        line = SAMPLE.get(name)
        mark = {1: (), 2: (pytest.mark.second,), None: (pytest.mark.nightly,)}[line]
        out.append(pytest.param(*row, id=name.replace(" ", "-"), marks=mark))
    return out


def test_every_cell_of_the_sample_is_one():
    assert set(SAMPLE) | WAITED <= {" ".join(row) for row in (*_moves(), *_builds())}


@pytest.fixture(scope="module")
def told(cloud):
    """The lab, where the minions of a pair of hosts stop where a test says."""
    cloud.purge_all()
    for host, there in kit.look(cloud).items():
        assert there["strays"] == [], f"left on {host} by the tests before these"
    with kit.told(cloud, PAIR):
        yield cloud
    cloud.purge_all()


@pytest.fixture(scope="module")
def kept():
    """The VM that goes to and fro between the cells of one kind; a cell that fails leaves none."""
    return SimpleNamespace(subject=None)


@pytest.fixture
def subject(told, kept, request):
    """The VM of a cell's kind, whole on one of the pair's hosts."""
    kind = request.node.callspec.params["kind"]
    if kept.subject is None or kept.subject.kind != kind:
        kept.subject = kit.Subject(told, kind)
        kept.subject.make()
    given, kept.subject = kept.subject, None
    given.is_good = False
    yield given
    if given.is_good:
        kept.subject = given


def _runs_on(subject, point):
    return subject.other if point.endswith(_OVER_THERE) else subject.host


def _dies_on(subject, point, who):
    if who == "qemu":
        return _runs_on(subject, point)
    own = subject.host if point.startswith("departure") else subject.other
    return {"source": subject.host, "target": subject.other}.get(who.partition("-")[0], own)


def _by_target(subject):
    """
    Return the pair in the order in which it is looked at.

    A move that goes on may end between the two looks: who has looked at its source before would see
    the VM run on both.
    """
    return subject.other, subject.host


def _cut_short(cloud, subject, point, who):
    """Begin a move, have somebody die at a boundary; return what the command has said."""
    words = ("virt.migrate", VM, subject.other)
    if point.startswith("order"):
        cloud.cut_off(point, *words)
        return ""
    host = _dies_on(subject, point, "own")
    kit.tell(cloud, host, point, "kill" if who == "job" else "wait")
    job = cloud.begin(*words)
    try:
        kit.reached(cloud, host, point, job)
        short, victim = who.rpartition("-")[2], _dies_on(subject, point, who)
        kit.die(cloud, short, victim, f"virt.migrate {VM}")
        kit.at_most_one_runs(kit.look(cloud, [h for h in _by_target(subject) if h != victim]))
        kit.release(cloud, host)
        kit.recover(cloud, short, victim)
        if short in _SILENT and f"{subject.kind} {point} {who}" not in WAITED:
            kit.give_up(cloud, f"virt.migrate {VM}")
    finally:
        done = cloud.end(job)
    assert not done.traceback, done.traceback
    return done.out if done.code == 0 else ""


@pytest.mark.parametrize(("kind", "point", "who"), _cells(_moves()))
def test_a_move_whoever_dies_at_a_boundary(told, subject, kind, point, who):
    was_cut = who.endswith(_CUTS) and subject.is_live
    said = _cut_short(told, subject, point, who)
    kit.at_most_one_runs(kit.look(told, _by_target(subject)))

    settled = told.run("virt.settle")

    assert settled.code == 0, settled.out + settled.err
    count = subject.count
    state = kit.holds(told, subject, was_cut=was_cut)
    kit.says_true(told, said + settled.out, subject.host)
    if subject.is_live:
        _goes_on(subject, state, was_cut, count)
    assert subject.host in PAIR
    subject.is_good = True


def _goes_on(subject, state, was_cut, count):
    if state == "shut off":
        subject.start()
    elif was_cut:
        # The host may have started it, when it booted: what its console has said is of before.
        subject.begins_anew(len(subject.cloud.console(subject.host, VM)))
    else:
        subject.counts_on(count)


@pytest.fixture
def bare(told, kept):
    """The lab without any VM, and as it is left."""
    kept.subject = None
    told.purge_all()
    before = told.traces()
    yield told
    try:
        assert told.run("virt.trash_empty").code == 0
        assert told.traces() == before
    finally:
        told.purge_all()


def _build_cut_short(cloud, point, who):
    if point.startswith("order"):
        cloud.cut_off(point, *INIT)
        return
    kit.tell(cloud, PAIR[0], point, "wait")
    job = cloud.begin(*INIT)
    try:
        kit.reached(cloud, PAIR[0], point, job)
        kit.die(cloud, who, PAIR[0], f"virt.init {VM}")
        kit.release(cloud, PAIR[0])
        kit.recover(cloud, who, PAIR[0])
        if who in _SILENT:
            kit.give_up(cloud, f"virt.init {VM}")
    finally:
        done = cloud.end(job)
    assert not done.traceback, done.traceback
    if done.code == 0:
        assert kit.having(kit.look(cloud)) == [PAIR[0]], done.out


def _is_over(done):
    return done.code == 0 or "already" in done.error


@pytest.mark.parametrize(("kind", "point", "who"), _cells(_builds()))
def test_a_build_whoever_dies_at_a_boundary(bare, kind, point, who):
    _build_cut_short(bare, point, who)

    again = bare.run(*INIT)

    # A runner that died has left a host's job at its work, which is told from one that is over.
    if again.code and ("at this moment" in again.error or "is being built on" in again.error):
        wait("the host's own job", lambda: _is_over(bare.run(*INIT)))
    elif again.code:
        assert f"is on {PAIR[0]} already" in again.error, again.error
    seen = kit.look(bare)
    assert kit.having(seen) == [PAIR[0]], seen
    here = seen[PAIR[0]]
    assert (here["kept"], here["missing"], here["files"]) == ([VM], [], kit.OWN), here
    assert bare.accepted() == [VM]
    if here["states"][VM] != "running":
        assert bare.local(PAIR[0], "virt.start", VM) is True
    wait("the guest", lambda: ticks(bare, PAIR[0], VM) > 0, timeout_s=60)
    assert bare.run("virt.purge", VM).code == 0
