"""Which minions a job is published for, and the form of its target."""

import pytest
from saltvirt.cluster.membership import Members
from saltvirt.cluster.rpc import publishing
from saltvirt.core.errors import MasterError

HOSTS = [f"hyper{number:04}" for number in range(120)]
GUESTS = [f"web{number}" for number in range(500)]
CACHE = {"minion_data_cache": True}


class Local:
    """Stand for Salt's LocalClient without a master: it records what is published."""

    def __init__(self, error=None):
        self.sent, self.event, self._error = [], self, error

    def pub(self, tgt, fun, arg, **options):
        self.sent.append((tgt, options["tgt_type"], options["jid"]))
        if self._error:
            return {"error": self._error}
        return {"jid": options["jid"] or "2026", "minions": [tgt] if isinstance(tgt, str) else tgt}


def choose_target(patterns, hosts=HOSTS, minions=(*HOSTS, *GUESTS), **opts):
    """Return ``(type, parts)`` of a target."""
    members = Members(patterns=tuple(patterns))
    target = publishing.choose_target({**CACHE, **opts}, members, list(hosts), minions)
    return target.kind, list(target.parts)


@pytest.mark.parametrize("is_filtered", [True, False])
def test_the_operators_own_glob_is_the_target_if_it_matches_exactly_the_hosts(is_filtered):
    # The master itself matches the minions, independent of its cache.
    opts = {"zmq_filtering": is_filtered, "minion_data_cache": False}

    assert choose_target(["hyper*"], **opts) == ("glob", ["hyper*"])


def test_several_globs_are_one_compound_target_that_all_minions_get():
    kind, parts = choose_target(["hyper00*", "hyper01*"])

    assert (kind, parts) == ("compound", ["hyper00* or hyper01*"])


def test_instead_of_a_target_for_many_guests_short_lists_are_used():
    kind, parts = choose_target(["hyper00*", "hyper01*"], zmq_filtering=True)

    assert kind == "list"
    assert [len(part) for part in parts] == [50, 50, 20]
    assert [host for part in parts for host in part] == HOSTS
    few_guests = (*HOSTS, *GUESTS[:50])
    assert (
        choose_target(["hyper00*", "hyper01*"], minions=few_guests, zmq_filtering=True)[0]
        == "compound"
    )


def test_without_an_expression_and_without_a_filter_one_list_is_shortest():
    assert choose_target(HOSTS) == ("list", [HOSTS])
    assert [len(part) for part in choose_target(HOSTS, zmq_filtering=True)[1]] == [50, 50, 20]


def test_all_lists_are_one_job():
    local = Local()
    target = publishing.Target(parts=[HOSTS[:50], HOSTS[50:]])

    jid, reached_minions = publishing.publish(
        local, target, "virt.signed", [], None, 5, nocache=True
    )

    assert local.sent == [(HOSTS[:50], "list", ""), (HOSTS[50:], "list", "2026")]
    assert (jid, reached_minions) == ("2026", {*HOSTS})


def test_the_error_of_a_master_that_refuses_the_job_is_shown():
    with pytest.raises(MasterError, match="did not send test.ping: no such user"):
        publishing.publish(Local("no such user"), ["h1"], "test.ping", [], None, 5)
