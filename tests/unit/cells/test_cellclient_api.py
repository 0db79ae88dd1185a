"""A silent, slow, hostile or foreign salt-api, each a real server, gives an error of one line."""

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
    """Return a function that returns the cell at a port."""
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


def failure_line(cell, opts, call=LIST, do=cellclient.ask):
    """Return the error of a call of a cell, which is one line."""
    with pytest.raises(CellFailed) as refused:
        do(cell, opts, call)
    line = str(refused.value)
    assert line.startswith("cell west: ") and "\n" not in line and "\x1b" not in line
    assert PASSWORD not in line
    return line


def test_a_request_has_the_call_and_the_credentials(cell, tls, opts):
    with serving(tls[1], saying({"return": [{"h1": {"running": ["a"]}}]})) as (port, requests):
        answer = cellclient.ask(cell(port), opts, LIST)
    head, _sign, body = requests[0].partition(b"\r\n\r\n")
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


def test_a_cell_without_a_valid_certificate_gets_no_request(cell, tls, opts):
    with serving(tls[1], saying({})) as (port, requests):
        assert "certificate of" in failure_line(cell(port, ca=None), opts)
    assert requests == []


@pytest.mark.parametrize(
    ("serve", "line"),
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
        (lambda connection: connection.sendall(b"no\r\n\r\n"), "no answer from https://127.0.0.1"),
        (lambda connection: None, "no answer from https://127.0.0.1"),
    ],
)
def test_a_wrong_answer_is_an_error_of_one_line(cell, tls, opts, serve, line):
    with serving(tls[1], serve) as (port, _requests):
        assert line in failure_line(cell(port), opts)


def dripping(connection):
    """Send a header without an end, byte by byte."""
    connection.sendall(OK)
    with contextlib.suppress(OSError):
        for _ in range(100):
            connection.sendall(b"X")
            time.sleep(0.02)


@pytest.mark.slow
def test_an_endless_answer_of_a_cell_ends_in_a_timeout(cell, tls, opts):
    begin = time.monotonic()
    with serving(tls[1], dripping) as (port, _requests):
        assert "within 1 s" in failure_line(cell(port, timeout_s=1), opts)
    assert time.monotonic() - begin < 4


def test_an_answer_is_read_up_to_its_limit(cell, tls, opts, monkeypatch):
    monkeypatch.setattr(cellclient, "_MOST_BYTES", 1000)
    with serving(tls[1], saying({"return": ["x" * 5000]})) as (port, _requests):
        assert "it has more than 1000" in failure_line(cell(port), opts)


def test_a_closed_port_counts_as_silent(cell, opts):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "is silent: https://127.0.0.1" in failure_line(cell(port), opts)


def test_a_server_that_accepts_and_sends_nothing_counts_as_silent(cell, opts, monkeypatch):
    monkeypatch.setattr(cellclient, "_CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        assert "did not answer within" in failure_line(cell(hung.getsockname()[1]), opts)


def test_a_job_is_polled_until_it_ends(cell, tls, opts):
    jid = "20261124202137000000"
    running = {"state": "running", "answer": None}
    ended_job = {"state": "over", "answer": {"h1": {"a": "started"}}}
    answers = [{"jid": jid, "tag": "x"}, running, ended_job]
    with serving(tls[1], *(saying({"return": [reply]}) for reply in answers)) as (port, requests):
        begun = []
        call = Call(fun="virt.start", arguments={"name": "a"})
        answer = cellclient.ask_by_job(cell(port), opts, call, begun.append)
    assert (answer, begun) == ({"h1": {"a": "started"}}, [jid])
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2])[0] for request in requests]
    assert [body["client"] for body in bodies] == ["runner_async", "runner", "runner"]
    assert bodies[1]["kwarg"] == {"jid": jid, "wait_s": 20}


def test_arguments_that_are_none_are_sent_to_the_cell(cell, tls, opts):
    """Without them the cell would create the VM with the default NIC and disk."""
    arguments = {"name": "a", "cpu": 1, "mem": 64, "nic": None, "disk": None}
    with serving(tls[1], saying({"return": [{"jid": 1}]})) as (port, requests):
        failure_line(
            cell(port), opts, Call(fun="virt.init", arguments=arguments), cellclient.ask_by_job
        )
    (sent,) = json.loads(requests[0].partition(b"\r\n\r\n")[2])
    assert sent["kwarg"] == {**arguments, "cell": "local"}


def test_a_job_is_polled_across_a_restart_of_the_cells_salt_api(cell, tls, opts, monkeypatch):
    jid, call = "20261124202137000000", Call(fun="virt.start", arguments={"name": "a"})
    ended_job, post, posts = (
        {"state": "over", "answer": {"h1": {"a": "started"}}},
        connection.post,
        [],
    )

    def posted(*args, **kwargs):
        if len(posts) in (1, 2):  # the job has begun, and salt-api is back after two failed polls
            posts.append(1)
            cause = ConnectionRefusedError(111, "Connection refused")
            raise connection.ServerUnreachable(str(cause)) from cause
        posts.append(0)
        return post(*args, **kwargs)

    monkeypatch.setattr(connection, "post", posted)
    monkeypatch.setattr(cellclient, "_PAUSE_S", 0)
    with serving(
        tls[1], *(saying({"return": [answer]}) for answer in ({"jid": jid}, ended_job))
    ) as (
        port,
        _,
    ):
        assert cellclient.ask_by_job(cell(port), opts, call) == {"h1": {"a": "started"}}
    assert posts == [0, 1, 1, 0]


def test_a_job_of_a_cell_that_stays_silent_is_named(cell, tls, opts, monkeypatch):
    jid, call = "20261124202137000000", Call(fun="virt.start", arguments={"name": "a"})
    monkeypatch.setattr(cellclient, "_UNRESPONSIVE_S", 0)
    with serving(tls[1], saying({"return": [{"jid": jid}]})) as (port, _requests):
        line = failure_line(cell(port), opts, call, cellclient.ask_by_job)
    assert "is silent: https://127.0.0.1" in line
    assert f"virt.start has begun there as job {jid}" in line


@pytest.mark.parametrize(
    ("answers", "line"),
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
def test_a_job_that_fails_is_one_line(cell, tls, opts, answers, line):
    call = Call(fun="virt.start", arguments={"name": "a"})
    with serving(tls[1], *(saying({"return": [answer]}) for answer in answers)) as (
        port,
        _requests,
    ):
        assert line in failure_line(cell(port), opts, call, cellclient.ask_by_job)


@pytest.mark.parametrize(
    "serve",
    [
        saying(b"", b"HTTP/1.1 401 No\r\n"),
        saying({"return": [{"error": "no"}]}),
        saying({"return": [{"state": 1}]}),
    ],
)
def test_a_job_that_cannot_be_polled_is_named(cell, tls, opts, serve):
    """The top may lack the permission to call virt.cell_job, for example."""
    jid, call = "20261124202137000000", Call(fun="virt.purge", arguments={"name": "a"})
    with serving(tls[1], saying({"return": [{"jid": jid}]}), serve) as (port, _requests):
        line = failure_line(cell(port), opts, call, cellclient.ask_by_job)
    assert f"virt.purge has begun there as job {jid}" in line


def test_the_error_says_that_a_job_may_have_begun(cell, tls, opts):
    call = Call(fun="virt.start", arguments={"name": "a"})
    with serving(tls[1], lambda connection: None) as (port, _requests):
        line = failure_line(cell(port), opts, call, cellclient.ask_by_job)
    assert "it may have begun virt.start nevertheless" in line


def test_a_call_that_is_interrupted_at_its_start_may_have_begun(cell, opts, monkeypatch):
    def posted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "post", posted)
    line = failure_line(
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
    west = cell(1)
    path = Path(west.credentials)
    path.write_text(content)
    path.chmod(mode)
    opts["user"] = "root"
    with pytest.raises(BadConfig) as refused:
        cellclient.read(west, opts)
    assert line in str(refused.value) and "credentials" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_the_content_of_a_credentials_file_is_not_shown(cell, opts):
    opts["user"] = "root"
    credentials = cellclient.read(cell(1), opts)
    assert PASSWORD not in repr(credentials) and credentials.low["password"] == PASSWORD
