"""Commands on a master one of whose cells cannot be used: only what needs that cell fails."""

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
    """A master without hypervisors of its own: west answers, and the entry of east has a slip."""

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

    def does(self, call, *said):
        """Return what a command returns while west says these things, one after the other."""
        with serving(self._context, *(saying({"return": [one]}) for one in said)) as (port, heard):
            entry = {"url": f"https://127.0.0.1:{port}", **self.entry}
            self._opts["virt"] = {"cells": {"west": entry, "east": self.slip}, **self.more}
            try:
                return run.command(self._opts, None, None, call, self._own)
            finally:
                assert len(heard) == len(said)


@pytest.fixture
def top(tls, tmp_path, opts):
    """A top with two cells, one of which cannot be used."""
    return Top(tls, tmp_path, opts)


def of(fun, cell=None, **arguments):
    """Return a call."""
    return Call(fun=fun, arguments=arguments, cell=cell)


def test_what_all_are_asked_shows_the_others_and_names_the_entry(top):
    shown = top.does(of("virt.list"), {"h1": {"running": ["web"]}})

    assert set(shown) == {"west/h1", "failed"}
    assert list(shown["failed"]) == ["east/*"]
    assert shown["failed"]["east/*"].startswith(SLIP)


def test_what_one_cell_is_asked_needs_no_other(top):
    listed = top.does(of("virt.list", cell="west"), {"h1": {"running": ["web"]}})
    assert listed == {"west/h1": {"running": ["web"]}}
    with pytest.raises(CellFailed, match=f"^cell east: {SLIP}"):
        top.does(of("virt.evacuate", cell="east", host="h1"))


def test_a_page_of_one_cell_is_what_that_says(top):
    second = {"h2": {"running": ["web"]}}
    paged = top.does(of("virt.list", cell="west", offset=1, limit=1), second)
    assert paged == {"west/h2": {"running": ["web"]}}


def test_sorted_rows_of_one_cell_are_shown_as_they_are_asked_for(top):
    rows = {"h2": {"memory": {"limit_mib": 8}}, "h1": {"memory": {"limit_mib": 4}}}
    shown = top.does(of("virt.host_info", cell="west", sort="memory", fields="memory"), rows)
    assert list(shown) == ["west/h2", "west/h1"]


def test_a_vm_that_another_cell_has_is_found(top):
    shown = top.does(of("virt.vm_info", name="web"), WEB, {"h1": {"web": {"state": "running"}}})
    assert shown == {"west/h1": {"web": {"state": "running"}}}
    with pytest.raises(NoSuchVm, match=rf"\(not asked: cell east: {SLIP}"):
        top.does(of("virt.stop", name="nobody"), {"nobody": NOWHERE})


@pytest.mark.parametrize("given", [{"cells": 5}, {"cell_prefix": "-x"}, {}])
def test_what_is_of_this_masters_own_hosts_goes_on(top, given):
    top.more = given
    top.does(of("virt.evacuate", host="hyper1"))
    assert top.here == ["virt.evacuate"]


@pytest.mark.parametrize("said", [{"web": {"hosts": 5}}, {"failed": NOWHERE}, "no"])
def test_what_others_have_found_is_shown_beside_a_cell_that_says_what_is_no_answer(top, said):
    with serving(top._context, saying({"return": [WEB]})) as (port, _heard):
        top.slip = {**top.entry, "url": f"https://127.0.0.1:{port}"}
        shown = top.does(of("virt.find", name="web"), said)

    assert shown["web"]["hosts"] == {"east/h1": "running"}
    assert "not understood" in shown["failed"]["west/*"]


def test_a_new_vm_is_refused_only_while_its_name_may_be_there(top):
    with pytest.raises(NameTaken, match=f"on hosts that cannot be asked: cell east: {SLIP}"):
        top.does(of("virt.init", cell="west", name="web"))
    top.entry["prefix"], top.slip["prefix"] = "w-", "e-"
    with pytest.raises(CellFailed, match=f"^cell east: {SLIP}"):
        top.does(of("virt.init", name="e-1"))
    jid, over = "20261124202137000000", {"state": "over", "answer": {"host": "h1", "name": "w-1"}}
    done = top.does(of("virt.init", name="w-1"), {"jid": jid}, over)
    assert done["host"] == "west/h1"


def test_a_new_vm_is_told_of_a_beginning_of_names_that_cannot_be_used(top):
    top.more = {"cell_prefix": "-x", "cells": {}}
    with pytest.raises(BadConfig, match="option virt:cell_prefix: '-x' cannot begin"):
        top.does(of("virt.init", name="web"))


def test_two_commands_of_one_name_say_the_same_wherever_they_are(top, opts):
    folder = Path(opts["cachedir"]) / "salt-virt/names"
    with locks.hold_lock(folder / "web.lock"), pytest.raises(NameTaken) as refused:
        top.does(of("virt.init", cell="west", name="web"))
    assert str(refused.value) == str(orders.taken_error("web", "deployed"))


def test_a_name_that_is_asked_for_twice_is_no_other_commands(top):
    top.entry["prefix"], top.slip["prefix"] = "w-", "e-"
    jid, why = "20261124202137000000", "vms: 'w-1' is asked for twice"
    over = {"state": "over", "answer": {"error": why}}
    with pytest.raises(CellFailed, match=f"^cell west: {why}$"):
        top.does(of("virt.init_many", vms=["w-1", "w-1"]), {"jid": jid}, over)


ROWS = {"vms": {"w-1": {"host": "h1", "outcome": "reset", "error": None}}}


def test_several_vms_go_to_the_cell_of_their_prefix_and_no_other_is_asked(top):
    top.entry = {**top.entry, "prefix": "w-"}
    for name in ("w-*", ["w-1", "w-2"]):
        shown = top.does(of("virt.get_disks", name=name), ROWS)
        assert shown["vms"]["w-1"]["host"] == "west/h1"


@pytest.mark.parametrize("name", ["web*", "w*", "*", ["w-1", "web1"], ["w-1", "t-1"]])
def test_several_vms_that_may_be_of_several_cells_need_the_name_of_one(top, name):
    top.entry, top.more = {**top.entry, "prefix": "w-"}, {"cell_prefix": "t-"}
    with pytest.raises(BadArgument, match="cell: a call about several VMs goes to one cell"):
        top.does(of("virt.get_disks", name=name))
    assert top.here == []


def test_several_vms_of_a_cell_that_is_named_are_that_cells(top):
    shown = top.does(of("virt.get_disks", name="*", cell="west"), ROWS)
    assert shown["vms"]["w-1"]["host"] == "west/h1"
    top.does(of("virt.get_disks", name="*", cell="local"))
    assert top.here == ["virt.get_disks"]
