"""Hosts that request certificates from a CA of the tests."""

import shutil
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from askedca import ask
from saltvirt.certificates.host import enrolment, installed
from saltvirt.core import wire

FUNCTIONS = {"cmd.has_exec": lambda _name: False}


def answer_of(place, question):
    """Return the CA's answer as plain data."""
    requests = question["certificates"]
    return wire.plain(ask(place, wanted=requests, now=datetime.now(timezone.utc)))


@pytest.fixture
def bare(place, monkeypatch):
    """A host without certificates, on which no daemon runs."""
    # QEMU could not enter a folder below pytest's own.
    folder = Path(tempfile.mkdtemp(prefix="salt-virt-"))
    folder.chmod(0o755)
    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": str(folder / "admin-sock")})
    yield enrolment.Enrolment(
        basepath=str(folder / "etc/pki"),
        minion_id="hyper1",
        ask=lambda question: {"libvirt_pki": answer_of(place, question)},
    )
    shutil.rmtree(folder)


@pytest.fixture
def host(bare):
    """A host with valid certificates."""
    changes, _comment = bare.run(FUNCTIONS)
    assert set(changes) >= set(installed.DEFAULT_PURPOSES)
    return bare, FUNCTIONS
