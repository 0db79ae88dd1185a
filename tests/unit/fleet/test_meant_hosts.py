"""Salt calls minions by their hosts' full names: who leaves the domain out is asked about it."""

from functools import partial

import keypairs
import pytest
from saltvirt.errors import BadArgument
from saltvirt.fleet import allowing, keys
from saltvirt.pki import store


@pytest.mark.parametrize("do", [allowing.allow, partial(allowing.disallow, now=store.utc_now())])
def test_a_host_without_its_domain_or_in_other_letters_is_asked_about(opts, do):
    for there in ("rack1.example.org", "rack2.example.org", "rack2.example.net"):
        keys.accept(opts, there, keypairs.named("a guest")[0])

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
