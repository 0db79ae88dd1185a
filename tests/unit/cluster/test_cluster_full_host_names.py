"""Minion ids are full host names: an error for a short name suggests the full one."""

from functools import partial

import keypairs
import pytest
from saltvirt.ca import store
from saltvirt.certificates.master import allowing
from saltvirt.cluster import minionkeys
from saltvirt.core.errors import BadArgument
from saltvirt.migration.master import evacuate, restore
from saltvirt.seeding.master import authorization
from saltvirt.storage.master import images


@pytest.mark.parametrize("do", [allowing.allow, partial(allowing.disallow, now=store.utc_now())])
def test_a_short_name_or_another_case_suggests_the_minion_id(opts, do):
    for minion_id in ("rack1.example.org", "rack2.example.org", "rack2.example.net"):
        minionkeys.accept(opts, minion_id, keypairs.named("a guest")[0])

    for typed_name, suggested in (
        ("rack1", "rack1.example.org"),
        ("Rack1.example.com", "rack1.example.org"),
        ("rack2", "rack2.example.net or rack2.example.org"),
    ):
        with pytest.raises(BadArgument, match=f"'{typed_name}'.*; is {suggested} meant[?]"):
            do(opts, [typed_name])
    with pytest.raises(BadArgument) as refused:
        do(opts, ["rack3"])
    assert "meant" not in str(refused.value)


@pytest.mark.parametrize(
    "do",
    [
        partial(evacuate.set_maintenance, host=None, state="on"),
        partial(evacuate.dry_run, host=None, with_stopped=True),
        partial(restore.dry_run, host=None),
        partial(images.build, source="salt://a", name="a", host=None, options={}),
        partial(images.restore_trash, host=None, entry="a"),
        partial(authorization.grant, name="web", host=None, minutes=1, replace=False),
    ],
)
def test_an_empty_name_of_a_host_is_refused_in_one_line(master, do):
    with pytest.raises(BadArgument, match="^host: None is not text$"):
        do(master)
