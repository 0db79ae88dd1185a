"""Commands on a master with an unusable cell: only those that need this cell fail."""

import json
from pathlib import Path

import pytest
from cellserver import saying, serving
from saltvirt.cells import run
from saltvirt.cells.registry import CellFailed
from saltvirt.cells.routes import Call
from saltvirt.cluster import orders
from saltvirt.core import locks
from saltvirt.core.errors import BadArgument, BadConfig, NameTaken, NoSuchVm

SLIP = "option virt:cells:east: unknown key 'urls'"
NOWHERE = {"hosts": {}, "traces": [], "may_have": {}, "order": None}
WEB = {"web": {**NOWHERE, "hosts": {"h1": "running"}}}


class Top:
    """A master without hypervisors: cell west answers, and the entry of cell east is wrong."""

    def __init__(self, tls, folder, opts):
        self._context, self._opts = tls[1], opts
        credentials = folder / "west.yaml"
        credentials.write_text(json.dumps({"token": "a-token"}))
        credentials.chmod(0o600)
        self.entry = {"credentials": str(credentials), "ca": str(tls[0] / "ca.pem")}
        self.slip = {"url": "https://east:8000", "credentials": "/x", "urls": "x"}
        self.more = {}
        self.here = []

    def _own(self, call):
        self.here.append(call.fun)
        return {}

    def run(self, call, *answers):
        """Run a command while west gives these answers in turn, and return its result."""
        with serving(self._context, *(saying({"return": [answer]}) for answer in answers)) as (
            port,
            requests,
        ):
            entry = {"url": f"https://127.0.0.1:{port}", **self.entry}
            self._opts["virt"] = {"cells": {"west": entry, "east": self.slip}, **self.more}
            try:
                return run.command(self._opts, None, None, call, self._own)
            finally:
                assert len(requests) == len(answers)


@pytest.fixture
def top(tls, tmp_path, opts):
    """A top with two cells, one of which cannot be used."""
    return Top(tls, tmp_path, opts)


def new_call(fun, cell=None, **arguments):
    """Return a call."""
    return Call(fun=fun, arguments=arguments, cell=cell)


def test_a_call_to_all_cells_shows_the_other_cells_and_names_the_wrong_entry(top):
    answer = top.run(new_call("virt.list"), {"h1": {"running": ["web"]}})

    assert set(answer) == {"west/h1", "failed"}
    assert list(answer["failed"]) == ["east/*"]
    assert answer["failed"]["east/*"].startswith(SLIP)


def test_a_call_to_one_cell_needs_no_other(top):
    answer = top.run(new_call("virt.list", cell="west"), {"h1": {"running": ["web"]}})
    assert answer == {"west/h1": {"running": ["web"]}}
    with pytest.raises(CellFailed, match=f"^cell east: {SLIP}"):
        top.run(new_call("virt.evacuate", cell="east", host="h1"))


def test_a_page_of_one_cell_is_that_cells_own_page(top):
    second = {"h2": {"running": ["web"]}}
    paged = top.run(new_call("virt.list", cell="west", offset=1, limit=1), second)
    assert paged == {"west/h2": {"running": ["web"]}}


def test_sorted_rows_of_one_cell_are_shown_as_they_are_asked_for(top):
    rows = {"h2": {"memory": {"limit_mib": 8}}, "h1": {"memory": {"limit_mib": 4}}}
    answer = top.run(new_call("virt.host_info", cell="west", sort="memory", fields="memory"), rows)
    assert list(answer) == ["west/h2", "west/h1"]


def test_a_vm_that_another_cell_has_is_found(top):
    answer = top.run(
        new_call("virt.vm_info", name="web"), WEB, {"h1": {"web": {"state": "running"}}}
    )
    assert answer == {"west/h1": {"web": {"state": "running"}}}
    with pytest.raises(NoSuchVm, match=rf"\(not asked: cell east: {SLIP}"):
        top.run(new_call("virt.stop", name="nobody"), {"nobody": NOWHERE})


@pytest.mark.parametrize("options", [{"cells": 5}, {"cell_prefix": "-x"}, {}])
def test_calls_to_this_masters_own_hosts_work(top, options):
    top.more = options
    top.run(new_call("virt.evacuate", host="hyper1"))
    assert top.here == ["virt.evacuate"]


@pytest.mark.parametrize("answer", [{"web": {"hosts": 5}}, {"failed": NOWHERE}, "no"])
def test_other_cells_findings_are_shown_beside_a_wrong_answer(top, answer):
    with serving(top._context, saying({"return": [WEB]})) as (port, _requests):
        top.slip = {**top.entry, "url": f"https://127.0.0.1:{port}"}
        merged_answer = top.run(new_call("virt.find", name="web"), answer)

    assert merged_answer["web"]["hosts"] == {"east/h1": "running"}
    assert "not understood" in merged_answer["failed"]["west/*"]


def test_a_new_vm_is_refused_only_while_the_unusable_cell_may_have_its_name(top):
    with pytest.raises(NameTaken, match=f"on hosts that cannot be asked: cell east: {SLIP}"):
        top.run(new_call("virt.init", cell="west", name="web"))
    top.entry["prefix"], top.slip["prefix"] = "w-", "e-"
    with pytest.raises(CellFailed, match=f"^cell east: {SLIP}"):
        top.run(new_call("virt.init", name="e-1"))
    jid, ended_job = (
        "20261124202137000000",
        {"state": "over", "answer": {"host": "h1", "name": "w-1"}},
    )
    answer = top.run(new_call("virt.init", name="w-1"), {"jid": jid}, ended_job)
    assert answer["host"] == "west/h1"


def test_a_new_vm_is_refused_with_the_error_of_an_unusable_prefix(top):
    top.more = {"cell_prefix": "-x", "cells": {}}
    with pytest.raises(BadConfig, match="option virt:cell_prefix: '-x' cannot begin"):
        top.run(new_call("virt.init", name="web"))


def test_two_commands_for_one_name_have_the_same_error_on_all_masters(top, opts):
    folder = Path(opts["cachedir"]) / "salt-virt/names"
    with locks.hold_lock(folder / "web.lock"), pytest.raises(NameTaken) as refused:
        top.run(new_call("virt.init", cell="west", name="web"))
    assert str(refused.value) == str(orders.taken_error("web", "deployed"))


def test_a_name_given_twice_is_not_taken_for_another_command(top):
    top.entry["prefix"], top.slip["prefix"] = "w-", "e-"
    jid, reason = "20261124202137000000", "vms: 'w-1' is asked for twice"
    ended_job = {"state": "over", "answer": {"error": reason}}
    with pytest.raises(CellFailed, match=f"^cell west: {reason}$"):
        top.run(new_call("virt.init_many", vms=["w-1", "w-1"]), {"jid": jid}, ended_job)


ROWS = {"vms": {"w-1": {"host": "h1", "outcome": "reset", "error": None}}}


def test_several_vms_go_to_the_cell_of_their_prefix_and_no_other_is_asked(top):
    top.entry = {**top.entry, "prefix": "w-"}
    for name in ("w-*", ["w-1", "w-2"]):
        answer = top.run(new_call("virt.get_disks", name=name), ROWS)
        assert answer["vms"]["w-1"]["host"] == "west/h1"


@pytest.mark.parametrize("name", ["web*", "w*", "*", ["w-1", "web1"], ["w-1", "t-1"]])
def test_new_vms_of_several_possible_cells_need_a_named_cell(top, name):
    top.entry, top.more = {**top.entry, "prefix": "w-"}, {"cell_prefix": "t-"}
    with pytest.raises(BadArgument, match="cell: a call about several VMs goes to one cell"):
        top.run(new_call("virt.get_disks", name=name))
    assert top.here == []


def test_new_vms_go_to_the_named_cell(top):
    answer = top.run(new_call("virt.get_disks", name="*", cell="west"), ROWS)
    assert answer["vms"]["w-1"]["host"] == "west/h1"
    top.run(new_call("virt.get_disks", name="*", cell="local"))
    assert top.here == ["virt.get_disks"]
