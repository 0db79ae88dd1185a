"""Each run asks libvirt to read its new files until libvirt has read them."""

import errno
import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import asloaded
import pytest
from saltvirt.certificates.host import enrolment, installed
from saltvirt.certificates.master import certificates
from saltvirt.cluster.rpc.replies import Reply
from saltvirt.core import files
from saltvirt.core.errors import StorageError


def test_the_revocation_list_is_read_even_without_a_new_certificate(host, place, monkeypatch):
    work, _functions = host
    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": "/"})
    monkeypatch.setattr(enrolment.reload.Admin, "read_tls_files", lambda _self: None)
    place.revoke(["0a" * 16], datetime.now(timezone.utc))
    looked = []

    def refusing(question):
        refused = {"error": "60 times within an hour"}
        return {"libvirt_pki": refused} if question["certificates"] else work.ask(question)

    due = replace(work, is_forced=True, ask=refusing)
    functions = {"cmd.has_exec": lambda name: looked.append(name) or True, "cmd.run_all": None}
    for _run in range(2):
        with pytest.raises(enrolment.EnrolmentRefused, match="60 times within an hour"):
            due.run(functions)
    assert looked == ["virt-admin"], "once, when it was written"


def test_libvirtd_is_told_again_at_the_next_run_to_read_its_files(host, place, monkeypatch):
    work, _functions = host
    functions, answers = {"cmd.has_exec": lambda _name: True, "cmd.run_all": None}, []
    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": "/"})
    monkeypatch.setattr(enrolment.reload.Admin, "read_tls_files", lambda _self: answers.pop(0))
    place.revoke(["0a" * 16], datetime.now(timezone.utc))
    answers += ["error: no tls service found, unable to update tls files", None]

    changes, comment = work.run(functions)
    assert changes and "libvirtd has not read them (no tls service found, " in comment
    assert work.unread == [], "it does not listen, and so lets nobody in"
    assert work.run(functions) == ({}, "all keys are in order; libvirtd uses them")
    assert work.run(functions) == ({}, "all keys are in order"), "it is not told once more"


def test_files_written_by_a_killed_run_are_read_at_the_next_run(host, place, monkeypatch):
    work, functions = host
    place.revoke(["0a" * 16], datetime.now(timezone.utc))

    def dies(_self, _functions):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(enrolment.Enrolment, "_reload", dies)
        with pytest.raises(KeyboardInterrupt):
            work.run(functions)

    changes, comment = work.run(functions)
    assert changes == {} and "no libvirt daemon runs; it reads them at its start" in comment


def test_a_daemon_that_cannot_be_told_now_is_told_later(host, place, monkeypatch):
    work, functions = host
    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": "/"})
    monkeypatch.setattr(enrolment.reload.Admin, "read_tls_files", lambda _self: None)
    place.revoke(["0a" * 16], datetime.now(timezone.utc))

    _changes, comment = work.run(functions)
    assert "virt-admin is not here" in comment and work.unread == ["libvirtd"]
    assert work.plan() == ({}, "all keys are in order; libvirt has not read all of them yet")

    able = {"cmd.has_exec": lambda _name: True, "cmd.run_all": None}
    assert work.run(able) == ({}, "all keys are in order; libvirtd uses them")
    assert work.plan() == ({}, "all keys are in order")


def test_a_binary_revocation_list_is_replaced(host):
    work, functions = host
    path = Path(work.basepath) / "CA/cacrl.pem"
    content_before = path.read_bytes()
    path.write_bytes("Zürich".encode("latin-1") + content_before)

    changes, _comment = work.run(functions)

    assert changes == {str(path): "written"} and path.read_bytes() == content_before


def test_libvirtd_reads_the_files_written_before_the_disk_was_full(host, place, monkeypatch):
    work, _functions = host
    place.revoke(["0a" * 16], datetime.now(timezone.utc))
    (Path(work.basepath) / "qemu/ca-crl.pem").unlink()
    looked, write = [], files.write

    def full(path, *args):
        if Path(path).parent.name == "qemu":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, *args)

    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": "/"})
    monkeypatch.setattr(installed.files, "write", full)
    with pytest.raises(StorageError, match="not all keys could be written: .*No space left"):
        work.run({"cmd.has_exec": lambda name: looked.append(name) or False})

    assert looked == ["virt-admin"]


def test_the_master_learns_of_a_list_that_a_daemon_did_not_read(host, place, monkeypatch):
    work, _functions = host
    module = asloaded.module("_states/virt.py")
    module.__opts__ = {"id": "hyper1", "test": False}
    module.__salt__ = {"cmd.has_exec": lambda _name: True, "cmd.run_all": None}
    monkeypatch.setattr(enrolment, "Enrolment", lambda **_kwargs: work)
    monkeypatch.setattr(enrolment, "DAEMONS", {"libvirtd": "/"})
    monkeypatch.setattr(enrolment.reload.Admin, "read_tls_files", lambda _self: "error: bad CRL")
    place.revoke(["0a" * 16], datetime.now(timezone.utc))

    answer = module.keys_("a name")

    assert answer["result"] is True and answer["unread"] == ["libvirtd"]
    outcome = certificates._outcome(Reply(minion="hyper1", value={"virt_|-a": answer}))
    assert (
        outcome == ("", answer["comment"]) and "libvirtd has not read them (bad CRL)" in outcome[1]
    )
