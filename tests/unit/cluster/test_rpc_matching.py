"""Which hypervisors a compound target means: Salt's own matchers, over the hypervisors alone."""

import pytest
import salt.cache
from saltvirt.cluster import minionkeys
from saltvirt.cluster.rpc import publishing
from saltvirt.core.errors import BadArgument

HOSTS = ["hyper1", "hyper2", "hyper3"]
GUESTS = [f"web{n}" for n in range(1, 21)]


class Counted:
    """The master's cache, which counts its reads."""

    def __init__(self, cache):
        self._cache, self.read = cache, []

    def fetch(self, *where):
        """Read one minion's data."""
        self.read.append(where)
        return self._cache.fetch(*where)

    def __getattr__(self, name):
        """Return other attributes of the cache."""
        return getattr(self._cache, name)


@pytest.fixture
def read(opts, monkeypatch):
    """The reads of a master's cache, which has hosts and guests."""
    cache = Counted(salt.cache.factory(opts))
    for minion in [*HOSTS, *GUESTS]:
        minionkeys.accept(opts, minion, f"the key of {minion}")
        grains = {"rack": "r1" if minion in ("hyper1", "web1") else "r2", "ipv4": ["10.0.0.1"]}
        cache.store("grains", minion, grains)
        cache.store(f"minions/{minion}", "data", {"grains": grains})
    monkeypatch.setattr(salt.cache, "factory", lambda *_args, **_kwargs: cache)
    return cache.read


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("*", HOSTS),
        ("G@rack:r1", ["hyper1"]),
        ("not G@rack:r1", ["hyper2", "hyper3"]),
        ("hyper* and not G@rack:r1", ["hyper2", "hyper3"]),
        ("E@.*[12] and ( G@rack:r1 or hyper2 )", ["hyper1", "hyper2"]),
        ("L@hyper3,web1", ["hyper3"]),
        ("S@10.0.0.0/8", HOSTS),
        ("N@racked", ["hyper1"]),
        ("web*", []),
    ],
)
def test_a_target_means_what_it_means_to_salt_among_the_hypervisors(opts, read, target, expected):
    opts["nodegroups"] = {"racked": "G@rack:r1"}

    assert sorted(publishing.match_hosts(opts, HOSTS, target, "where")) == expected
    # One read for each host, with any number of guests among the minions.
    assert len(read) <= len(HOSTS)


def test_a_listed_guest_is_not_reported_as_without_a_key(opts, read):
    with pytest.raises(BadArgument, match="lists gone, whose key") as caught:
        publishing.match_hosts(opts, HOSTS, "L@hyper1,web1,gone", "where")

    assert "web1," not in str(caught.value).replace("L@hyper1,web1,gone", "")
