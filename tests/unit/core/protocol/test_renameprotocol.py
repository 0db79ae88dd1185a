"""The protocol of a rename, explored: kills, silence, power cuts and repeated commands."""

import pytest
from clouds import Lost
from renames import NAMES, Cloud, Renames
from saltvirt.core.protocol import renameprotocol
from small_clouds import explored


class Settling(Renames):
    """The renames, with each state also settled by the same command and by the exchanged one."""

    def check(self, cloud):
        """Return the fault of a state, None if there is none."""
        wrong = super().check(cloud)
        if wrong or cloud.command is not None or cloud.other_vms:
            return wrong
        for call in (NAMES, NAMES[::-1]):
            try:
                if wrong := super().check(self.settled(cloud, call)):
                    return f"after rename {call}: {wrong}"
            except Lost as caught:
                return str(caught)
        return None


LEFTS = [
    (2, 1, 1, 1, 0),
    (2, 1, 0, 0, 1),
    (2, 2, 0, 0, 0),
    (3, 1, 0, 0, 0),
    pytest.param((3, 2, 1, 1, 1), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("budget", LEFTS, ids=str)
def test_after_any_fault_the_vm_has_one_name_and_its_minion_is_known(budget):
    states = explored(Settling(), Cloud(budget=budget))
    print(f"{states} states")
    assert states > 100


def test_a_rename_without_faults_renames_and_its_exchange_undoes_it():
    cloud = Renames()
    settled = cloud.settled(Cloud(halves=(None, None)).with_half("A", None), NAMES)
    assert settled.name == "A"
    begun = Cloud(budget=(1, 0, 0, 0, 0))
    (_label, begun) = next(iter(cloud.successors(begun)))
    ended = cloud._let_end(begun)
    assert (ended.name, ended.keys, ended.guest) == ("B", {"B"}, {"B"})


# Each of these classes leaves out one rule, and the checker finds the resulting fault.


class Hasty(Renames):
    """A command that goes on without giving up the earlier job."""

    def _give_up_job(self, cloud, command):
        named = cloud._replace(command=command._replace(names=command.call))
        label, following = next(super()._give_up_job(named._replace(jobs=()), command))
        yield label, following._replace(jobs=cloud.jobs)


class Forgetful(Renames):
    """A refusal ends the record also after an earlier attempt."""

    def run(self, earlier):
        """Return the master's part."""
        if earlier is not None and earlier.was_ordered:
            earlier = renameprotocol.Left(
                phase=earlier.phase,
                was_ordered=False,
                moves_key=True,
                is_reversed=earlier.is_reversed,
            )
        return renameprotocol.run(earlier)


class KeyFirst(Renames):
    """The old key goes before the host has renamed the VM."""

    def _accept(self, cloud, command):
        for label, following in super()._accept(cloud, command):
            yield label, following._replace(keys=frozenset(command.names[1]))


class FreesFirst(Renames):
    """The half of the name that becomes free goes first."""

    def _end_new(self, cloud, command):
        yield from super()._end_old(cloud, command)

    def _end_old(self, cloud, command):
        yield from super()._end_new(cloud, command)


@pytest.mark.parametrize(
    ("cloud", "fault"),
    [
        pytest.param(Hasty(), "its job is not|names differ|accepted for", id="queued-job"),
        pytest.param(Forgetful(), "accepted for|names differ|job is not", id="earlier-attempt"),
        pytest.param(KeyFirst(), "no key is accepted for", id="key-first"),
        pytest.param(FreesFirst(), "another VM", id="free-name"),
    ],
)
def test_the_checker_finds_the_fault_of_each_missing_rule(cloud, fault):
    with pytest.raises(Lost, match=fault) as caught:
        explored(cloud, Cloud(budget=(3, 2, 1, 1, 0)))
    print(caught.value)
