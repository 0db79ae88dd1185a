"""A salt-api that is silent, slow, hostile or somebody else's: real servers, a line for each."""

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest
from cellserver import OK, saying, serving
from saltvirt.cells import cellclient
from saltvirt.cells.registry import Cell, CellFailed
from saltvirt.cells.routes import Call
from saltvirt.core.errors import BadConfig
from saltvirt.core.http import connection

PASSWORD = "a-password-that-nobody-may-see"
LIST = Call(fun="virt.list", arguments={"host": None, "sort": "vms"})


@pytest.fixture
def cell(tls, tmp_path):
    """Return a function: the cell at a port."""
    path = tmp_path / "west.yaml"
    path.write_text(json.dumps({"username": "top", "password": PASSWORD, "eauth": "file"}))
    path.chmod(0o600)

    def at(port, ca="ca.pem", timeout_s=2):
        return Cell(
            name="west",
            url=f"https://127.0.0.1:{port}",
            credentials=str(path),
            ca=ca and str(tls[0] / ca),
            timeout_s=timeout_s,
        )

    return at


def why(cell, opts, call=LIST, do=cellclient.ask):
    """Return the line that a cell's failure is."""
    with pytest.raises(CellFailed) as refused:
        do(cell, opts, call)
    line = str(refused.value)
    assert line.startswith("cell west: ") and "\n" not in line and "\x1b" not in line
    assert PASSWORD not in line
    return line


def test_a_question_says_what_is_asked_and_who_asks(cell, tls, opts):
    with serving(tls[1], saying({"return": [{"h1": {"running": ["a"]}}]})) as (port, heard):
        answer = cellclient.ask(cell(port), opts, LIST)
    head, _sign, body = heard[0].partition(b"\r\n\r\n")
    assert answer == {"h1": {"running": ["a"]}}
    assert head.startswith(b"POST /run HTTP/1.1\r\n")
    assert json.loads(body) == [
        {
            "client": "runner",
            "fun": "virt.list",
            "arg": [],
            "kwarg": {"sort": "vms", "cell": "local"},
            "username": "top",
            "password": PASSWORD,
            "eauth": "file",
        }
    ]


def test_nobody_is_asked_who_does_not_prove_who_he_is(cell, tls, opts):
    with serving(tls[1], saying({})) as (port, heard):
        assert "certificate of" in why(cell(port, ca=None), opts)
    assert heard == []


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (saying(b"<html>"), "its answer is not understood: it is not JSON"),
        (saying({"return": []}), "its answer is not understood"),
        (saying(b"\x1b[2J", b"HTTP/1.1 500 No\r\n"), "its salt-api answers HTTP 500"),
        (saying(b"", b"HTTP/1.1 401 No\r\n"), "refuses user 'top' (HTTP 401)"),
        (
            saying(b"", b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1/\r\n"),
            "its salt-api answers HTTP 302",
        ),
        (saying({"return": ["'virt.list' is not available."]}), "an older version"),
        (lambda one: one.sendall(b"no\r\n\r\n"), "no answer from https://127.0.0.1"),
        (lambda one: None, "no answer from https://127.0.0.1"),
    ],
)
def test_what_is_no_answer_is_one_line(cell, tls, opts, answer, line):
    with serving(tls[1], answer) as (port, _heard):
        assert line in why(cell(port), opts)


def dripping(one):
    """Send a header's letters for ever."""
    one.sendall(OK)
    with contextlib.suppress(OSError):
        for _ in range(100):
            one.sendall(b"X")
            time.sleep(0.02)


@pytest.mark.slow
def test_a_cell_that_never_ends_its_answer_is_not_waited_for(cell, tls, opts):
    begin = time.monotonic()
    with serving(tls[1], dripping) as (port, _heard):
        assert "within 1 s" in why(cell(port, timeout_s=1), opts)
    assert time.monotonic() - begin < 4


def test_no_more_is_read_than_an_answer_may_have(cell, tls, opts, monkeypatch):
    monkeypatch.setattr(cellclient, "_MOST_BYTES", 1000)
    with serving(tls[1], saying({"return": ["x" * 5000]})) as (port, _heard):
        assert "it has more than 1000" in why(cell(port), opts)


def test_nobody_there_is_silent(cell, opts):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "is silent: https://127.0.0.1" in why(cell(port), opts)


def test_one_that_takes_connections_and_says_nothing_is_silent(cell, opts, monkeypatch):
    monkeypatch.setattr(cellclient, "_CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        assert "did not answer within" in why(cell(hung.getsockname()[1]), opts)


def test_a_job_is_asked_for_until_it_is_over(cell, tls, opts):
    jid = "20261124202137000000"
    running = {"state": "running", "answer": None}
    over = {"state": "over", "answer": {"h1": {"a": "started"}}}
    said = [{"jid": jid, "tag": "x"}, running, over]
    with serving(tls[1], *(saying({"return": [one]}) for one in said)) as (port, heard):
        begun = []
        call = Call(fun="virt.start", arguments={"name": "a"})
        done = cellclient.ask_by_job(cell(port), opts, call, begun.append)
    assert (done, begun) == ({"h1": {"a": "started"}}, [jid])
    bodies = [json.loads(one.partition(b"\r\n\r\n")[2])[0] for one in heard]
    assert [one["client"] for one in bodies] == ["runner_async", "runner", "runner"]
    assert bodies[1]["kwarg"] == {"jid": jid, "wait_s": 20}


def test_what_is_none_is_told_to_who_makes_a_vm(cell, tls, opts):
    """It would be made with the usual NIC and disk."""
    given = {"name": "a", "cpu": 1, "mem": 64, "nic": None, "disk": None}
    with serving(tls[1], saying({"return": [{"jid": 1}]})) as (port, heard):
        why(cell(port), opts, Call(fun="virt.init", arguments=given), cellclient.ask_by_job)
    (sent,) = json.loads(heard[0].partition(b"\r\n\r\n")[2])
    assert sent["kwarg"] == {**given, "cell": "local"}


def test_a_job_is_asked_for_on_while_its_cells_salt_api_is_restarted(cell, tls, opts, monkeypatch):
    jid, call = "20261124202137000000", Call(fun="virt.start", arguments={"name": "a"})
    over, post, down = {"state": "over", "answer": {"h1": {"a": "started"}}}, connection.post, []

    def posted(*given, **more):
        if len(down) in (1, 2):  # it was told to begin, and is back after that
            down.append(1)
            cause = ConnectionRefusedError(111, "Connection refused")
            raise connection.ServerUnreachable(str(cause)) from cause
        down.append(0)
        return post(*given, **more)

    monkeypatch.setattr(connection, "post", posted)
    monkeypatch.setattr(cellclient, "_PAUSE_S", 0)
    with serving(tls[1], *(saying({"return": [one]}) for one in ({"jid": jid}, over))) as (port, _):
        assert cellclient.ask_by_job(cell(port), opts, call) == {"h1": {"a": "started"}}
    assert down == [0, 1, 1, 0]


def test_a_job_whose_cell_is_gone_for_long_is_named(cell, tls, opts, monkeypatch):
    jid, call = "20261124202137000000", Call(fun="virt.start", arguments={"name": "a"})
    monkeypatch.setattr(cellclient, "_UNRESPONSIVE_S", 0)
    with serving(tls[1], saying({"return": [{"jid": jid}]})) as (port, _heard):
        line = why(cell(port), opts, call, cellclient.ask_by_job)
    assert "is silent: https://127.0.0.1" in line
    assert f"virt.start has begun there as job {jid}" in line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ([{"tag": "x"}], "its answer is not understood: it has no 'jid'"),
        ([{"jid": "../x"}], "its answer is not understood: it has no 'jid'"),
        ([{"jid": "20261124202137000000"}, {"state": 1}], "its answer is not understood"),
        (
            [{"jid": "20261124202137000000"}, {"state": "lost"}],
            "virt.start was ended there before it could answer (job 20261124202137000000)",
        ),
        (
            [{"jid": "20261124202137000000"}, {"state": "over", "answer": {"error": "no"}}],
            "cell west: no",
        ),
    ],
)
def test_a_job_that_fails_is_one_line(cell, tls, opts, said, line):
    call = Call(fun="virt.start", arguments={"name": "a"})
    with serving(tls[1], *(saying({"return": [one]}) for one in said)) as (port, _heard):
        assert line in why(cell(port), opts, call, cellclient.ask_by_job)


@pytest.mark.parametrize(
    "answer",
    [
        saying(b"", b"HTTP/1.1 401 No\r\n"),
        saying({"return": [{"error": "no"}]}),
        saying({"return": [{"state": 1}]}),
    ],
)
def test_a_job_whose_end_cannot_be_asked_for_is_named(cell, tls, opts, answer):
    """Such as where the top may begin something, and may not call virt.cell_job."""
    jid, call = "20261124202137000000", Call(fun="virt.purge", arguments={"name": "a"})
    with serving(tls[1], saying({"return": [{"jid": jid}]}), answer) as (port, _heard):
        line = why(cell(port), opts, call, cellclient.ask_by_job)
    assert f"virt.purge has begun there as job {jid}" in line


def test_a_job_that_may_have_begun_is_said(cell, tls, opts):
    call = Call(fun="virt.start", arguments={"name": "a"})
    with serving(tls[1], lambda one: None) as (port, _heard):
        line = why(cell(port), opts, call, cellclient.ask_by_job)
    assert "it may have begun virt.start nevertheless" in line


def test_what_is_interrupted_while_it_is_begun_may_have_begun(cell, opts, monkeypatch):
    def posted(*_given, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "post", posted)
    line = why(
        cell(1), opts, Call(fun="virt.purge", arguments={"name": "a"}), cellclient.ask_by_job
    )
    assert "interrupted here; it may have begun virt.purge nevertheless" in line


@pytest.mark.parametrize(
    ("content", "mode", "line"),
    [
        ('{"token": "t"}', 0o644, "is open to other users (0644)"),
        ('{"token": "t"}', 0o620, "is open to other users (0620)"),
        (f"username: top\npassword: {PASSWORD}\n", 0o600, "must have username, password"),
        (f"{{{PASSWORD}", 0o600, "must have username, password"),
        ("{token: 1}", 0o600, "must have username, password"),
    ],
)
def test_credentials_that_cannot_be_used_are_not_shown(cell, opts, content, mode, line):
    one = cell(1)
    path = Path(one.credentials)
    path.write_text(content)
    path.chmod(mode)
    opts["user"] = "root"
    with pytest.raises(BadConfig) as refused:
        cellclient.read(one, opts)
    assert line in str(refused.value) and "credentials" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_what_is_read_is_not_shown(cell, opts):
    opts["user"] = "root"
    read = cellclient.read(cell(1), opts)
    assert PASSWORD not in repr(read) and read.low["password"] == PASSWORD
