"""The protocol of a rename, explored: kills, silence, power cuts and repeated commands."""

import pytest
from clouds import Lost
from renames import NAMES, Cloud, Renames
from saltvirt.core.protocol import renameprotocol
from small_clouds import explored


class Settling(Renames):
    """Each state is also brought to its end, by the same command and by the exchanged one."""

    def check(self, cloud):
        """Return what is wrong, None if nothing is."""
        wrong = super().check(cloud)
        if wrong or cloud.command is not None or cloud.others:
            return wrong
        for call in (NAMES, NAMES[::-1]):
            try:
                if wrong := super().check(self.settled(cloud, call)):
                    return f"after rename {call}: {wrong}"
            except Lost as lost:
                return str(lost)
        return None


LEFTS = [
    (2, 1, 1, 1, 0),
    (2, 1, 0, 0, 1),
    (2, 2, 0, 0, 0),
    (3, 1, 0, 0, 0),
    pytest.param((3, 2, 1, 1, 1), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("left", LEFTS, ids=str)
def test_whatever_goes_wrong_the_vm_has_one_name_and_its_minion_is_known(left):
    states = explored(Settling(), Cloud(left=left))
    print(f"{states} states")
    assert states > 100


def test_a_rename_without_faults_renames_and_its_exchange_undoes_it():
    cloud = Renames()
    done = cloud.settled(Cloud(halves=(None, None)).with_half("A", None), NAMES)
    assert done.name == "A"
    begun = Cloud(left=(1, 0, 0, 0, 0))
    (_label, begun) = next(iter(cloud.successors(begun)))
    ended = cloud._let_end(begun)
    assert (ended.name, ended.keys, ended.guest) == ("B", {"B"}, {"B"})


# Each of these leaves out one rule, and the checker finds what that costs.


class Hasty(Renames):
    """A command that goes on without giving up the earlier job."""

    def _give_up_job(self, cloud, command):
        named = cloud._replace(command=command._replace(names=command.call))
        label, there = next(super()._give_up_job(named._replace(jobs=()), command))
        yield label, there._replace(jobs=cloud.jobs)


class Forgetful(Renames):
    """A refusal ends the record also after an earlier attempt."""

    def run(self, left):
        """Return the master's part."""
        if left is not None and left.was_ordered:
            left = renameprotocol.Left(
                phase=left.phase, was_ordered=False, moves_key=True, is_reversed=left.is_reversed
            )
        return renameprotocol.run(left)


class KeyFirst(Renames):
    """The old key goes before the host has renamed the VM."""

    def _accept(self, cloud, command):
        for label, there in super()._accept(cloud, command):
            yield label, there._replace(keys=frozenset(command.names[1]))


class FreesFirst(Renames):
    """The half of the name that becomes free goes first."""

    def _end_new(self, cloud, command):
        yield from super()._end_old(cloud, command)

    def _end_old(self, cloud, command):
        yield from super()._end_new(cloud, command)


@pytest.mark.parametrize(
    ("cloud", "wrong"),
    [
        pytest.param(Hasty(), "its job is not|names differ|accepted for", id="queued-job"),
        pytest.param(Forgetful(), "accepted for|names differ|job is not", id="earlier-attempt"),
        pytest.param(KeyFirst(), "no key is accepted for", id="key-first"),
        pytest.param(FreesFirst(), "another VM", id="free-name"),
    ],
)
def test_the_checker_finds_what_a_missing_rule_costs(cloud, wrong):
    with pytest.raises(Lost, match=wrong) as lost:
        explored(cloud, Cloud(left=(3, 2, 1, 1, 0)))
    print(lost.value)
