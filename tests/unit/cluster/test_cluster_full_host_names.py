"""Salt calls minions by their hosts' full names: who leaves the domain out is asked about it."""

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
def test_a_host_without_its_domain_or_in_other_letters_is_asked_about(opts, do):
    for there in ("rack1.example.org", "rack2.example.org", "rack2.example.net"):
        minionkeys.accept(opts, there, keypairs.named("a guest")[0])

    for said, meant in (
        ("rack1", "rack1.example.org"),
        ("Rack1.example.com", "rack1.example.org"),
        ("rack2", "rack2.example.net or rack2.example.org"),
    ):
        with pytest.raises(BadArgument, match=f"'{said}'.*; is {meant} meant[?]"):
            do(opts, [said])
    with pytest.raises(BadArgument) as nobody:
        do(opts, ["rack3"])
    assert "meant" not in str(nobody.value)


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
def test_where_one_host_must_be_named_none_is_refused_in_a_line(master, do):
    with pytest.raises(BadArgument, match="^host: None is not text$"):
        do(master)
