"""How the options of ``virt.migrate`` are read."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Move
from saltvirt.core.options.config import HostSettings
from saltvirt.migration import movespec


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_bandwith": 1}, "did you mean 'max_bandwidth'"),
        ({"max_bandwidth": -1}, "max_bandwidth: -1 is out of range"),
        ({"limit_s": 0}, "limit_s: 0 is out of range"),
        ({"max_bandwidth": 10**20}, "out of range; give between 1 and 8796093022207"),
        ({"postcopy_bandwidth": 10**20}, "out of range; give between 1 and 8796093022207"),
        ({"max_downtime": 10**7}, "max_downtime: 10000000 is out of range"),
        ({"parallel_connections": 256}, "parallel_connections: 256 is out of range"),
        ({"comp_mt_level": 10}, "comp_mt_level: 10 is out of range; give between 0 and 9"),
        ({"comp_mt_threads": 256}, "comp_mt_threads: 256 is out of range"),
        ({"comp_mt_dthreads": 256}, "comp_mt_dthreads: 256 is out of range"),
        ({"comp_xbzrle_cache": 2**63}, "comp_xbzrle_cache: 9223372036854775808 is out of range"),
        ({"postcopy_after": 2**31}, "postcopy_after: 2147483648 is out of range"),
        ({"limit_s": 10**20}, "out of range; give between 1 and 31536000"),
        ({"stall_s": 10**20}, "out of range; give between 1 and 31536000"),
        ({"max_downtime": "soon"}, "is not a whole number"),
        ({"live": "yes"}, "neither True nor False"),
        ({"copy_storage": "some"}, "'some'; all or incremental"),
        ({"copy_storage": ["all"]}, "; all or incremental"),
        ({"comp_methods": "zip"}, "of mt and xbzrle"),
        ({"password": "x"}, "by their certificates"),
    ],
)
def test_a_move_with_a_bad_argument_is_refused(options, reason):
    with pytest.raises(BadArgument, match=reason):
        movespec.from_call(HostSettings(), options)


def test_the_old_keywords_of_a_move_mean_what_they_did():
    move = movespec.from_call(
        HostSettings(tunnel=True),
        {
            "copy_storage": "inc",
            "comp_methods": "mt,xbzrle",
            "compressed": True,
            "postcopy_after": 3,
        },
    )

    assert move == Move(
        copy_storage="incremental",
        comp_methods=("mt", "xbzrle"),
        tunnel=True,
        compressed=True,
        postcopy=True,
        postcopy_after=3,
    )


@pytest.mark.parametrize("empty", [None, "", 0, False])
def test_an_option_that_was_ignored_on_3006_is_ignored(empty):
    # Salt 3006.25 ignored each option with a false value: salt/modules/virt.py 743 to 824.
    options = dict.fromkeys(("max_bandwidth", "max_downtime", "comp_mt_threads"), empty)
    more_options = dict.fromkeys(("comp_xbzrle_cache", "postcopy_bandwidth", "copy_storage"), empty)

    assert movespec.from_call(HostSettings(), {**options, **more_options}) == Move()
    level = Move(comp_mt_level=0) if empty == 0 and empty is not False else Move()
    assert movespec.from_call(HostSettings(), {"comp_mt_level": empty}) == level


@pytest.mark.parametrize("value", [0, False, 1, "0", "1"])
def test_zero_and_false_are_one_connection_for_the_memory(value):
    assert (
        movespec.from_call(HostSettings(), {"parallel_connections": value}).parallel_connections
        == 1
    )
