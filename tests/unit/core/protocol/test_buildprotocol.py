"""The protocol of a build, and of images that several VMs share, explored to their ends."""

import pytest
from clouds import Lost
from saltvirt.core.protocol import moveprotocol
from small_clouds import Builds, Images, OldBuilds, OldImages, Sent, Site, explored


def test_a_build_that_dies_anywhere_leaves_a_whole_vm_or_nothing():
    states = explored(Builds(), Site())
    print(f"{states} states")
    assert states > 100


def test_two_moves_of_one_image_take_nothing_from_each_other():
    states = explored(Images(), Sent())
    print(f"{states} states")
    assert states > 30


@pytest.mark.parametrize(
    ("cloud", "world", "why"),
    [
        pytest.param(OldImages(), Sent(), "on behalf of another", id="L3"),
        pytest.param(OldBuilds(), Site(left=(1, 0, 3, 0)), "is gone", id="L4-killed"),
        pytest.param(OldBuilds(), Site(left=(0, 1, 3, 0)), "is gone", id="L4-power"),
    ],
)
def test_the_checker_finds_what_was_lost_before(cloud, world, why):
    with pytest.raises(Lost, match=why) as lost:
        explored(cloud, world)
    print(lost.value)


def test_an_image_that_was_removed_left_an_overlay_without_its_base():
    class Blind(OldImages):
        def check(self, world):
            why = super().check(world)
            return why if why == "an overlay has no base" else None

    with pytest.raises(Lost, match="an overlay has no base") as lost:
        explored(Blind(), Sent())
    print(lost.value)


def test_a_builder_that_would_undo_what_is_defined_is_found():
    class Undoing(Builds):
        def _settled(self, site):
            if site.phase == moveprotocol.COMPLETE:
                return site._replace(phase=None)
            return site._replace(phase=None, defined=0, files=0)

    with pytest.raises(Lost, match="is gone"):
        explored(Undoing(), Site())
