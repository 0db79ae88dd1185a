"""Whom a job is published for, and how its target is written, which each of them gets."""

import pytest
from saltvirt.cluster.membership import Members
from saltvirt.cluster.rpc import publishing
from saltvirt.core.errors import MasterError

HOSTS = [f"hyper{number:04}" for number in range(120)]
GUESTS = [f"web{number}" for number in range(500)]
CACHE = {"minion_data_cache": True}


class Local:
    """Stand for Salt's LocalClient, of which no master is there: it notes what is published."""

    def __init__(self, error=None):
        self.sent, self.event, self._error = [], self, error

    def pub(self, tgt, fun, arg, **options):
        self.sent.append((tgt, options["tgt_type"], options["jid"]))
        if self._error:
            return {"error": self._error}
        return {"jid": options["jid"] or "2026", "minions": [tgt] if isinstance(tgt, str) else tgt}


def of(patterns, hosts=HOSTS, minions=(*HOSTS, *GUESTS), **opts):
    """Return ``(type, parts)`` of a target."""
    members = Members(patterns=tuple(patterns))
    found = publishing.choose_target({**CACHE, **opts}, members, list(hosts), minions)
    return found.kind, list(found.parts)


@pytest.mark.parametrize("is_filtered", [True, False])
def test_the_operators_own_glob_is_the_target_if_it_means_just_those(is_filtered):
    # The master itself looks which minions it means, whatever it has cached of them.
    opts = {"zmq_filtering": is_filtered, "minion_data_cache": False}

    assert of(["hyper*"], **opts) == ("glob", ["hyper*"])


def test_several_globs_are_one_compound_target_that_all_minions_get():
    kind, parts = of(["hyper00*", "hyper01*"])

    assert (kind, parts) == ("compound", ["hyper00* or hyper01*"])


def test_what_would_go_to_many_guests_goes_by_short_lists_where_the_master_filters():
    kind, parts = of(["hyper00*", "hyper01*"], zmq_filtering=True)

    assert kind == "list"
    assert [len(part) for part in parts] == [50, 50, 20]
    assert [host for part in parts for host in part] == HOSTS
    few_guests = (*HOSTS, *GUESTS[:50])
    assert of(["hyper00*", "hyper01*"], minions=few_guests, zmq_filtering=True)[0] == "compound"


def test_without_an_expression_and_without_a_filter_one_list_is_shortest():
    assert of(HOSTS) == ("list", [HOSTS])
    assert [len(part) for part in of(HOSTS, zmq_filtering=True)[1]] == [50, 50, 20]


def test_all_lists_are_one_job():
    local = Local()
    target = publishing.Target(parts=[HOSTS[:50], HOSTS[50:]])

    jid, reached = publishing.publish(local, target, "virt.signed", [], None, 5, nocache=True)

    assert local.sent == [(HOSTS[:50], "list", ""), (HOSTS[50:], "list", "2026")]
    assert (jid, reached) == ("2026", {*HOSTS})


def test_a_master_that_refuses_the_job_says_why():
    with pytest.raises(MasterError, match="did not send test.ping: no such user"):
        publishing.publish(Local("no such user"), ["h1"], "test.ping", [], None, 5)
