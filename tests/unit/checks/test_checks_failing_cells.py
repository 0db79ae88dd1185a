"""What an audit and a check of the setup find of cells: each fault is planted on a real server."""

import json
import os
import shutil
import socket

import pytest
from cellserver import saying, serving
from saltvirt.checks.setup.master.setupcloud import CELLS, NEEDED

PASSWORD = "a-password-that-nobody-may-see"
NOBODY = {"salt-virt-check": {"hosts": {}, "traces": [], "may_have": {}, "order": None}}


class West:
    """The cell of a master, as docs/cells.md sets it up, and what its salt-api says."""

    def __init__(self, tls, folder):
        self._tls, self.folder = tls, folder
        self.credentials, self.ca = folder / "west.yaml", folder / "west.pem"
        self.credentials.write_text(
            json.dumps({"username": "top", "password": PASSWORD, "eauth": "file"})
        )
        self.credentials.chmod(0o600)
        shutil.copyfile(tls[0] / "ca.pem", self.ca)
        self.ca.chmod(0o644)
        self.says = saying({"return": [NOBODY]})
        self.entry = {"credentials": str(self.credentials), "ca": str(self.ca)}
        self.more = {}
        # For faults by which it is not asked, as the server would wait for whoever comes.
        self.is_asked = True

    def look(self, opts, do):
        """Return what a check says that asks it."""
        with serving(self._tls[1], *([self.says] if self.is_asked else [])) as (port, heard):
            entry = {"url": f"https://127.0.0.1:{port}", **self.entry}
            opts["virt"] = {**opts["virt"], "cells": {"west": entry}, **self.more}
            found = do()
        self.heard = heard
        return found


@pytest.fixture
def west(tls, tmp_path):
    """A cell of which there is nothing to be said."""
    return West(tls, tmp_path)


def open_credentials(west):
    west.credentials.chmod(0o644)
    west.is_asked = False


def credentials_of_another(west):
    os.chown(west.credentials, 65534, 0)
    west.is_asked = False


def open_authority(west):
    west.ca.chmod(0o666)


def authority_of_another(west):
    os.chown(west.ca, 65534, 0)


def no_authority(west):
    west.entry["ca"] = str(west.folder / "nothing.pem")
    west.is_asked = False


def another_authority(west):
    del west.entry["ca"]


def nobody_there(west):
    with socket.create_server(("127.0.0.1", 0)) as free:
        west.entry["url"] = f"https://127.0.0.1:{free.getsockname()[1]}"
    west.is_asked = False


def another_password(west):
    west.says = saying(b"", b"HTTP/1.1 401 No\r\n")


def older(west):
    west.says = saying({"return": ["'virt.find' is not available."]})


def misspelt(west):
    west.entry["urls"] = "x"
    west.is_asked = False


def own_prefix(west):
    west.more["cell_prefix"] = "-top"


def no_mapping(west):
    west.more["cells"] = "west"
    west.is_asked = False


# What is planted, what an audit calls it, where, and what is said of it with its fix.
PLANTED = {
    open_credentials: ("cell-credentials", "master", "other users (0644)", "chmod 600"),
    credentials_of_another: ("cell-credentials", "master", "another user", "chown root:"),
    open_authority: ("cell-tls", "master", "writable for other users (0666)", "chmod 644"),
    authority_of_another: ("cell-tls", "master", "another user than root", "chown root:"),
    no_authority: ("cell-tls", "west/*", "nothing.pem): No such file", "the authority that"),
    another_authority: ("cell-tls", "west/*", "is not accepted", "virt:cells:west:ca"),
    nobody_there: ("not-checked", "west/*", "cell west: is silent", "virt.list cell=west"),
    another_password: ("not-checked", "west/*", "refuses user 'top'", "docs/cells.md"),
    older: ("not-checked", "west/*", "older version", "docs/cells.md"),
    misspelt: ("wrong-options", "master", "virt:cells:west: unknown key 'urls'", "mend it"),
    own_prefix: ("wrong-options", "master", "virt:cell_prefix: '-top'", "mend it"),
    no_mapping: ("wrong-options", "master", "virt:cells: expected a mapping", "mend it"),
}


def test_a_cell_that_is_as_it_should_be_is_asked_once_and_not_named(world, setup, west):
    assert west.look(world.opts, world.audit) == []
    assert len(west.heard) == 1 and b"virt.find" in west.heard[0]
    assert west.look(setup.opts, setup.check) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_audit_finds_what_is_planted_alone(world, west, plant):
    check, where, what, fix = PLANTED[plant]
    plant(west)

    found = west.look(world.opts, world.audit)

    assert [one[:2] for one in found] == [(check, where)]
    assert what in found[0][2] and fix in found[0][3]
    assert PASSWORD not in str(found) and "\n" not in str(found)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_check_of_the_setup_finds_it_too(setup, west, plant):
    _check, where, what, fix = PLANTED[plant]
    plant(west)

    (found,) = west.look(setup.opts, setup.data)[0]["findings"]

    assert (found["check"], found["where"], found["level"]) == ("cells", where, NEEDED)
    assert what in found["what"] and found["fix"]


@pytest.mark.parametrize("plant", [open_credentials, another_authority, nobody_there, misspelt])
def test_where_names_say_their_cell_only_that_cells_vms_need_it(setup, west, plant):
    west.entry["prefix"] = "west-"
    plant(west)

    assert [one[2] for one in west.look(setup.opts, setup.check)] == [CELLS]


def test_names_that_could_be_of_two_cells_are_found(world, setup, west):
    west.more["cell_prefix"] = "we"
    west.entry["prefix"] = "west-"
    west.is_asked = False

    ((check, _where, what, _fix),) = west.look(world.opts, world.audit)
    assert check == "wrong-options"
    assert "virt:cells:west:prefix: 'west-' begins like virt:cell_prefix ('we')" in what
    assert [one[0] for one in west.look(setup.opts, setup.check)] == ["cells"]


def test_whoever_names_hosts_is_told_of_them_alone(setup, west):
    nobody_there(west)
    assert west.look(setup.opts, lambda: setup.check("hyper1")) == []
