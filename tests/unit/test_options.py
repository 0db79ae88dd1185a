"""Where the options of a hypervisor and of a master come from."""

from collections import UserDict

import pytest
from saltvirt import config
from saltvirt.errors import BadConfig


@pytest.mark.parametrize(
    ("opts", "pillar", "images"),
    [
        ({"virt": {"images": "/a"}, "virt.images": "/b"}, {}, "/a"),
        ({"virt": {"images": None}, "virt.images": "/b"}, {}, "/b"),
        ({"virt": {"tunnel": True}}, {"virt": {"images": "/c"}}, "/c"),
        ({"virt": None, "virt.images": None}, {"virt.images": "/d"}, "/d"),
        ({"virt.images": "/a"}, {"virt": {"images": "/b"}}, "/a"),
        ({"virt.unknown": 1, "virt": {"unknown": 1, 2: 3}}, {}, "/srv/salt-images"),
    ],
)
def test_the_first_that_says_it_counts(opts, pillar, images):
    # What Salt's loader gives a module for grains and pillar is a mapping, and no dict.
    for kind in (dict, UserDict):
        assert config.host_settings(opts, kind(pillar)).images == images


def test_what_is_no_mapping_is_refused():
    with pytest.raises(BadConfig, match="option virt: expected a mapping, found 'kvm'"):
        config.host_settings({"virt.images": "/a"}, {"virt": "kvm"})
