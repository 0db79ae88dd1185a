"""Where the options of a hypervisor and of a master come from."""

from collections import UserDict

import pytest
from saltvirt.core.errors import BadConfig
from saltvirt.core.options import config


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
def test_the_first_source_of_an_option_counts(opts, pillar, images):
    # Salt's loader gives modules their grains and pillar as mappings that are no dicts.
    for kind in (dict, UserDict):
        assert config.host_settings(opts, kind(pillar)).images == images


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"virt": {"tags": {}, "placement": "pack"}, "virt.images": "/a"}, {}),
        ({"virt": {"tag": {}}}, {"tag": "tags"}),
        ({"virt": {"hypervisor": "kvm", "hypervisers": []}}, {"hypervisers": "hypervisors"}),
        ({"virt.image": "/a", "virtual": "kvm"}, {"image": "images"}),
        # An option of other software.
        ({"virt": {"billing": 1, 2: 3}}, {}),
    ],
)
def test_a_misspelt_option_is_named(source, expected):
    assert config.find_misspelt(source, None, UserDict({})) == expected


def test_options_that_are_no_mapping_are_refused():
    with pytest.raises(BadConfig, match="option virt: expected a mapping, found 'kvm'"):
        config.host_settings({"virt.images": "/a"}, {"virt": "kvm"})


@pytest.mark.parametrize(
    ("opts", "pillar", "seed"),
    [
        ({"limit_s": 600}, {"master": "10.0.0.1"}, {"limit_s": 600, "master": "10.0.0.1"}),
        ({"master": "a"}, {"master": "b", "limit_s": 9}, {"master": "a", "limit_s": 9}),
        ({"master": None}, {"master": "b"}, {"master": "b"}),
        # The value of an option is never merged from two sources.
        ({"config": {"x": 1}}, {"config": {"y": 2}}, {"config": {"x": 1}}),
    ],
)
def test_each_option_of_a_group_comes_from_its_first_source(opts, pillar, seed):
    for kind in (dict, UserDict):
        of_pillar = kind({"virt": {"seed": pillar}})
        assert config.host_settings({"virt": {"seed": opts}}, of_pillar).seed == seed


def test_user_and_host_of_the_connection_may_come_from_different_sources():
    settings = config.host_settings(
        {"virt": {"connection": {"uri": "qemu:///session", "auth": {"username": "a"}}}},
        {"virt": {"connection": {"uri": "test:///default", "auth": {"password": "b"}}}},
        {"virt.connection": {"auth": {"username": "c"}}},
    )

    assert (settings.uri, settings.username, settings.password) == ("qemu:///session", "a", "b")


def test_a_wrong_group_is_named_though_another_source_has_a_valid_one():
    settings = config.host_settings({"virt": {"seed": "x"}}, {"virt": {"seed": {"master": "m"}}})

    with pytest.raises(BadConfig, match="option virt:seed: expected a mapping with .*bootstrap"):
        assert settings.seed
