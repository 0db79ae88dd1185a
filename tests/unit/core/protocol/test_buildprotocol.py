"""The protocol of a build, and of images that several VMs share, explored to their ends."""

import pytest
from clouds import Lost
from saltvirt.core.protocol import moveprotocol
from small_clouds import Builds, Images, OldBuilds, OldImages, Sent, Site, explored


def test_a_killed_build_leaves_a_complete_vm_or_nothing():
    states = explored(Builds(), Site())
    print(f"{states} states")
    assert states > 100


def test_two_moves_with_one_image_do_not_disturb_each_other():
    states = explored(Images(), Sent())
    print(f"{states} states")
    assert states > 30


@pytest.mark.parametrize(
    ("cloud", "world", "reason"),
    [
        pytest.param(OldImages(), Sent(), "on behalf of another", id="L3"),
        pytest.param(OldBuilds(), Site(budget=(1, 0, 3, 0)), "is gone", id="L4-killed"),
        pytest.param(OldBuilds(), Site(budget=(0, 1, 3, 0)), "is gone", id="L4-power"),
    ],
)
def test_the_checker_finds_the_faults_of_the_old_protocols(cloud, world, reason):
    with pytest.raises(Lost, match=reason) as caught:
        explored(cloud, world)
    print(caught.value)


def test_an_image_that_was_removed_left_an_overlay_without_its_base():
    class Blind(OldImages):
        def check(self, world):
            fault = super().check(world)
            return fault if fault == "an overlay has no base" else None

    with pytest.raises(Lost, match="an overlay has no base") as caught:
        explored(Blind(), Sent())
    print(caught.value)


def test_the_checker_finds_a_builder_that_undoes_a_definition():
    class Undoing(Builds):
        def _settled(self, site):
            if site.phase == moveprotocol.COMPLETE:
                return site._replace(phase=None)
            return site._replace(phase=None, defined=0, files=0)

    with pytest.raises(Lost, match="is gone"):
        explored(Undoing(), Site())
