"""A dry run of emptying the trash says what would go and what would fail, and changes nothing."""

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.options.config import MasterSettings
from saltvirt.entry import views
from saltvirt.storage.master import images

TRASH = {
    "hyper1": {
        "web-1": {"bytes": 5, "away": [], "vm": "web"},
        "db-1": {"bytes": 0, "away": ["/srv/db of entry 'db-1' is not there"], "vm": "db"},
    },
    "hyper2": {"a-1": {"bytes": 7}},
    "hyper3": {"b-1": {"bytes": "many"}},
    "hyper4": {},
}


@pytest.fixture
def asked(monkeypatch):
    """The functions that hosts were asked for; hyper5 gives no answer."""
    functions = []

    def ask(_cloud, targets, fun, *_args, **_options):
        functions.append(fun)
        return {
            host: minions.Reply(minion=host, value=TRASH[host])
            if host in TRASH
            else minions.Reply(minion=host, is_missing=True)
            for host in targets
        }

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: [*TRASH, "hyper5"])
    return functions


@pytest.fixture
def cloud(opts):
    """A master."""
    settings = MasterSettings(hypervisors=[*TRASH, "hyper5"])
    return Cloud(opts=opts, settings=settings, progress=lambda *_args, **_figures: None)


def test_a_dry_run_names_what_would_go_and_what_would_fail(cloud, asked):
    answer = images.empty_trash(cloud, None, (), is_dry=True)

    assert asked == ["virt.trash"]
    assert (answer["hyper1"], answer["hyper2"]) == ({"web-1": 5}, {"a-1": 7})
    assert answer["failed"]["hyper1"] == "/srv/db of entry 'db-1' is not there"
    assert "hyper3" in answer["failed"] and answer["unreachable"] == ["hyper5"]
    assert "hyper4" not in answer
    view = views.find("virt.trash_empty", answer, {"dry_run": True})
    assert view["titles"][-1] == "WOULD FREE"


@pytest.mark.usefixtures("asked")
def test_a_dry_run_of_some_entries_is_of_these(cloud):
    answer = images.empty_trash(cloud, "hyper1", ("web-1", "web-2"), is_dry=True)

    assert answer == {
        "hyper1": {"web-1": 5},
        "failed": {"hyper1": "there is no entry 'web-2' in its trash"},
    }
    with pytest.raises(BadArgument, match="say on which host"):
        images.empty_trash(cloud, None, ("web-1",), is_dry=True)


@pytest.mark.usefixtures("asked")
def test_a_dry_run_without_any_answer_fails(cloud):
    with pytest.raises(VirtError, match="hyper5"):
        images.empty_trash(cloud, "hyper5", (), is_dry=True)
