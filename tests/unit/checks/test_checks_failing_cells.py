"""An audit and a check of the setup find faults of cells, each planted on a real server."""

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
    """The cell of a master, set up as in docs/cells.md, and the answer of its salt-api."""

    def __init__(self, tls, folder):
        self._tls, self.folder = tls, folder
        self.credentials, self.ca = folder / "west.yaml", folder / "west.pem"
        self.credentials.write_text(
            json.dumps({"username": "top", "password": PASSWORD, "eauth": "file"})
        )
        self.credentials.chmod(0o600)
        shutil.copyfile(tls[0] / "ca.pem", self.ca)
        self.ca.chmod(0o644)
        self.serve = saying({"return": [NOBODY]})
        self.entry = {"credentials": str(self.credentials), "ca": str(self.ca)}
        self.more = {}
        # False for faults that prevent the request, because the server would wait for it.
        self.is_asked = True

    def look(self, opts, do):
        """Return the findings of a check while the cell's server runs."""
        with serving(self._tls[1], *([self.serve] if self.is_asked else [])) as (port, requests):
            entry = {"url": f"https://127.0.0.1:{port}", **self.entry}
            opts["virt"] = {**opts["virt"], "cells": {"west": entry}, **self.more}
            findings = do()
        self.requests = requests
        return findings


@pytest.fixture
def west(tls, tmp_path):
    """A cell without findings."""
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


def closed_port(west):
    with socket.create_server(("127.0.0.1", 0)) as free:
        west.entry["url"] = f"https://127.0.0.1:{free.getsockname()[1]}"
    west.is_asked = False


def another_password(west):
    west.serve = saying(b"", b"HTTP/1.1 401 No\r\n")


def older(west):
    west.serve = saying({"return": ["'virt.find' is not available."]})


def misspelt(west):
    west.entry["urls"] = "x"
    west.is_asked = False


def with_own_prefix(west):
    west.more["cell_prefix"] = "-top"


def no_mapping(west):
    west.more["cells"] = "west"
    west.is_asked = False


# By planted fault: check and place of the finding, parts of its text and of its fix.
PLANTED = {
    open_credentials: ("cell-credentials", "master", "other users (0644)", "chmod 600"),
    credentials_of_another: ("cell-credentials", "master", "another user", "chown root:"),
    open_authority: ("cell-tls", "master", "writable for other users (0666)", "chmod 644"),
    authority_of_another: ("cell-tls", "master", "another user than root", "chown root:"),
    no_authority: ("cell-tls", "west/*", "nothing.pem): No such file", "the authority that"),
    another_authority: ("cell-tls", "west/*", "is not accepted", "virt:cells:west:ca"),
    closed_port: ("not-checked", "west/*", "cell west: is silent", "virt.list cell=west"),
    another_password: ("not-checked", "west/*", "refuses user 'top'", "docs/cells.md"),
    older: ("not-checked", "west/*", "older version", "docs/cells.md"),
    misspelt: ("wrong-options", "master", "virt:cells:west: unknown key 'urls'", "mend it"),
    with_own_prefix: ("wrong-options", "master", "virt:cell_prefix: '-top'", "mend it"),
    no_mapping: ("wrong-options", "master", "virt:cells: expected a mapping", "mend it"),
}


def test_a_sound_cell_is_asked_once_and_not_named(world, setup, west):
    assert west.look(world.opts, world.audit) == []
    assert len(west.requests) == 1 and b"virt.find" in west.requests[0]
    assert west.look(setup.opts, setup.check) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_audit_finds_each_planted_fault_alone(world, west, plant):
    check, where, text, fix = PLANTED[plant]
    plant(west)

    findings = west.look(world.opts, world.audit)

    assert [finding[:2] for finding in findings] == [(check, where)]
    assert text in findings[0][2] and fix in findings[0][3]
    assert PASSWORD not in str(findings) and "\n" not in str(findings)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_check_of_the_setup_finds_each_planted_fault(setup, west, plant):
    _check, where, text, fix = PLANTED[plant]
    plant(west)

    (finding,) = west.look(setup.opts, setup.data)[0]["findings"]

    assert (finding["check"], finding["where"], finding["level"]) == ("cells", where, NEEDED)
    assert text in finding["what"] and finding["fix"]


@pytest.mark.parametrize("plant", [open_credentials, another_authority, closed_port, misspelt])
def test_with_a_prefix_only_the_cells_own_vms_need_it(setup, west, plant):
    west.entry["prefix"] = "west-"
    plant(west)

    assert [finding[2] for finding in west.look(setup.opts, setup.check)] == [CELLS]


def test_names_that_could_be_of_two_cells_are_found(world, setup, west):
    west.more["cell_prefix"] = "we"
    west.entry["prefix"] = "west-"
    west.is_asked = False

    ((check, _where, text, _fix),) = west.look(world.opts, world.audit)
    assert check == "wrong-options"
    assert "virt:cells:west:prefix: 'west-' begins like virt:cell_prefix ('we')" in text
    assert [finding[0] for finding in west.look(setup.opts, setup.check)] == ["cells"]


def test_a_check_of_named_hosts_finds_faults_of_these_alone(setup, west):
    closed_port(west)
    assert west.look(setup.opts, lambda: setup.check("hyper1")) == []
