"""A cell's salt-api: this master's login there, its requests, and what comes back."""

import http.client
import os
import pwd
import re
import shlex
import ssl
import stat
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from saltvirt.cells import answers
from saltvirt.cells.answers import Job
from saltvirt.cells.registry import LOCAL, Cell, CellFailed, Entry, require_usable
from saltvirt.cells.routes import MERGED, Call
from saltvirt.core import terminal
from saltvirt.core.errors import BadConfig, VirtError
from saltvirt.core.http import connection
from saltvirt.core.http.connection import Deadline
from saltvirt.core.salt import masteruser, threads
from saltvirt.core.units import human

_MOST_CREDENTIAL_BYTES = 65536
_KINDS = ({"token"}, {"username", "password", "eauth"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """
    The login of this master at a cell's salt-api.

    low
        The fields that each call sends; never shown.
    shown_user
        What messages may show.
    """

    low: Mapping[str, str] = field(repr=False)
    shown_user: str


class CredentialsExposed(BadConfig):
    """
    Other users can get at the credentials file; messages show nothing from it.

    problem, fix
        The message in two parts: the problem, and the command that mends it.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; run: {fix}")
        self.problem, self.fix = problem, fix


def owner(opts: Mapping[str, Any]) -> pwd.struct_passwd:
    """Return the user that the master runs as."""
    return pwd.getpwnam(opts.get("user") or "root")


def read(cell: Cell, opts: Mapping[str, Any]) -> Credentials:
    """Return the credentials for a cell; raise BadConfig, which shows none of their content."""
    option, path = f"option virt:cells:{cell.name}:credentials", Path(cell.credentials)
    text = _read_content(option, path, owner(opts))
    try:
        login = yaml.safe_load(text)
    except yaml.YAMLError:
        login = None
    is_good = isinstance(login, dict) and set(login) in _KINDS
    if not is_good or not all(isinstance(value, str) and value for value in login.values()):
        raise BadConfig(
            f"{option}: {path} must have username, password and eauth, or token, each as text"
        )
    return Credentials(low=login, shown_user=repr(login.get("username", "with that token")))


def _read_content(option: str, path: Path, user: pwd.struct_passwd) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, encoding="utf-8", errors="replace") as file:
        status = os.fstat(handle)
        reason = _explain_exposure(status, user)
        if reason:
            quoted_path = shlex.quote(str(path))
            raise CredentialsExposed(
                f"{option}: {path} {reason}",
                f"chown {user.pw_name}: {quoted_path} && chmod 600 {quoted_path}",
            )
        return file.read(_MOST_CREDENTIAL_BYTES)


def _explain_exposure(status: os.stat_result, user: pwd.struct_passwd) -> str | None:
    """Return how other users can get at a file, None if they cannot."""
    if not stat.S_ISREG(status.st_mode):
        return "is no file"
    if status.st_uid not in (0, user.pw_uid):
        return "belongs to another user than the master's"
    is_open_to_group = status.st_gid not in (0, user.pw_gid) and status.st_mode & stat.S_IRWXG
    if is_open_to_group or status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        return f"is open to other users ({stat.S_IMODE(status.st_mode):04o})"
    return None


# Limit for the connection and the TLS handshake; a slower cell is unresponsive.
_CONNECT_S = 2
_MOST_BYTES = 128 << 20
# How long one request waits for a job's end, how long the cell may be unresponsive meanwhile, and
# the pause before the next attempt.
_TURN_S, _UNRESPONSIVE_S, _PAUSE_S = 20, 120, 2
_PARALLEL = 16
_JID = re.compile(r"\d{20}(_\d+)?")
_T = TypeVar("_T")


class _CellUnresponsive(CellFailed):
    """A cell does not answer; it may have received the call."""


class _CellUnreachable(CellFailed):
    """A cell cannot be reached: the call was not sent."""


class CellUnproved(CellFailed):
    """The server at a cell's address does not prove to be that cell: the call was not sent."""


def ask(entry: Entry, opts: Mapping[str, Any], call: Call, timeout_s: float = 0) -> Any:
    """Return a cell's answer to a short call; raise CellFailed."""
    cell = require_usable(entry)
    limit_s = timeout_s or cell.timeout_s
    answer = _post(cell, opts, {"client": "runner", **_build_low(call)}, limit_s)
    return answers.read_function_answer(cell.name, call.fun, answer)


def ask_by_job(
    entry: Entry,
    opts: Mapping[str, Any],
    call: Call,
    on_begin: Callable[[str], None] = lambda jid: None,
) -> Any:
    """
    Return a cell's answer to a call that may take long; raise CellFailed.

    on_begin
        Called with the id of the cell's job.
    """
    cell = require_usable(entry)
    reason = None
    try:
        answer = _post(cell, opts, {"client": "runner_async", **_build_low(call)}, cell.timeout_s)
    except _CellUnresponsive as error:
        reason = error.reason
    except (KeyboardInterrupt, SystemExit):
        reason = "interrupted here"
    if reason is not None:
        raise CellFailed(
            cell.name, f"{reason}; it may have begun {call.fun} nevertheless: look there first"
        )
    jid = answer.get("jid") if isinstance(answer, dict) else None
    if not isinstance(jid, str) or not _JID.fullmatch(jid):
        raise answers.bad_answer_error(cell.name, "it has no 'jid'")
    try:
        on_begin(jid)
        return answers.read_function_answer(
            cell.name, call.fun, _wait_for_end(cell, opts, call.fun, jid)
        )
    except (KeyboardInterrupt, SystemExit):
        raise CellFailed(
            cell.name,
            f"interrupted here; {call.fun} runs there {_answer_place(jid)}",
        ) from None


def _answer_place(jid: str) -> str:
    """Return how a cell's operator gets the answer of a job."""
    return f"as job {jid}; its answer, on the cell's master: salt-run jobs.lookup_jid {jid}"


def _wait_for_end(cell: Cell, opts: Mapping[str, Any], fun: str, jid: str) -> Any:
    """Wait for the end of a job and return its answer."""
    job_call = Call(fun="virt.cell_job", arguments={"jid": jid, "wait_s": _TURN_S})
    last_answer_s = time.monotonic()
    while True:
        try:
            answer = ask(cell, opts, job_call, _TURN_S + cell.timeout_s)
            job = answers.read(cell.name, Job, answer)
        except VirtError as error:
            is_silent = isinstance(error, _CellUnresponsive | _CellUnreachable)
            # A restart of the cell's salt-api does not end the job, which its master runs.
            if is_silent and time.monotonic() - last_answer_s <= _UNRESPONSIVE_S:
                time.sleep(_PAUSE_S)
                continue
            # The cell's external_auth may permit the call, and not virt.cell_job.
            reason = error.reason if isinstance(error, CellFailed) else str(error)
            wait_text = f", for {_UNRESPONSIVE_S} s now" if is_silent else ""
            raise CellFailed(
                cell.name, f"{reason}{wait_text}; {fun} has begun there {_answer_place(jid)}"
            ) from None
        last_answer_s = time.monotonic()
        if job.state == "lost":
            raise CellFailed(
                cell.name,
                f"{fun} was ended there before it could answer (job {jid}); repeat the command, "
                "which settles what it left",
            )
        if job.state == "over":
            return job.answer


def run_for_cells(
    cells: Mapping[str, Callable[[], _T]],
) -> tuple[dict[str, _T], dict[str, VirtError]]:
    """Call functions for several cells at once; return the results, and the errors, by cell."""
    results: dict[str, _T] = {}
    errors: dict[str, VirtError] = {}
    if not cells:
        return results, errors
    with ThreadPoolExecutor(min(len(cells), _PARALLEL)) as pool:
        futures = {name: threads.begin(pool, do) for name, do in cells.items()}
        for name, future in futures.items():
            try:
                results[name] = future.result()
            except VirtError as error:
                errors[name] = error
    return results, errors


def _build_low(call: Call) -> dict[str, Any]:
    # With cell=local a cell asks no cells of its own: no two masters ask each other forever.
    values, keywords = call.as_given()
    if call.fun in MERGED:
        # To these functions None means not given; to others it has a meaning, as in nic=None.
        keywords = {key: value for key, value in keywords.items() if value is not None}
    cell_keyword = {} if call.fun == "virt.cell_job" else {"cell": LOCAL}
    return {"fun": call.fun, "arg": values, "kwarg": {**keywords, **cell_keyword}}


def _post(cell: Cell, opts: Mapping[str, Any], low: Mapping[str, Any], limit_s: float) -> Any:
    try:
        login = read(cell, opts)
    except OSError as exc:
        raise CellFailed(cell.name, masteruser.explain_error(exc, opts)) from None
    try:
        context = ssl.create_default_context(cafile=cell.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    except (OSError, ssl.SSLError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CellUnproved(cell.name, f"virt:cells:{cell.name}:ca ({cell.ca}): {reason}") from None
    try:
        status, body = connection.post(
            f"{cell.url.rstrip('/')}/run",
            [{**low, **login.low}],
            context,
            Deadline(limit_s),
            connect_s=_CONNECT_S,
            most_bytes=_MOST_BYTES,
        )
    except connection.ServerUnreachable as exc:
        is_proved = not isinstance(exc.__cause__, ssl.SSLCertVerificationError)
        kind = _CellUnreachable if is_proved else CellUnproved
        raise kind(cell.name, _describe_failure(cell, exc.__cause__)) from None
    except TimeoutError:
        raise _CellUnresponsive(
            cell.name, f"no answer from {cell.url} within {limit_s:.0f} s"
        ) from None
    except (OSError, http.client.HTTPException) as exc:
        reason = terminal.one_line(str(exc) or type(exc).__name__)
        raise _CellUnresponsive(cell.name, f"no answer from {cell.url}: {reason}") from None
    return _check_reply(cell, login, status, body)


def _describe_failure(cell: Cell, cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {cell.url} is not accepted: {cause.verify_message}; "
            f"virt:cells:{cell.name}:ca names the authority that must have signed it"
        )
    if isinstance(cause, TimeoutError):
        return f"is silent: {cell.url} did not answer within {_CONNECT_S} s"
    return f"is silent: {cell.url}: {terminal.one_line(str(cause))}"


def _check_reply(cell: Cell, login: Credentials, status: int, body: bytes) -> Any:
    if status in (401, 403):
        raise CellFailed(
            cell.name,
            f"refuses user {login.shown_user} (HTTP {status}): its password is another one, or its "
            "external_auth does not let that user call this",
        )
    if len(body) > _MOST_BYTES:
        raise answers.bad_answer_error(cell.name, f"it has more than {human(_MOST_BYTES)}")
    if status != 200:
        text = terminal.one_line(body[:500].decode(errors="replace"))
        if answers.UNAVAILABLE in text:
            raise answers.too_old_error(cell.name)
        kind = _CellUnresponsive if status >= 500 else CellFailed
        raise kind(cell.name, f"its salt-api answers HTTP {status}: {text}")
    return answers.read_body(cell.name, body)


def describe_errors(errors: Mapping[str, VirtError]) -> dict[str, str]:
    """Return the reasons why cells could not be asked, by cell."""
    return {cell: getattr(error, "reason", str(error)) for cell, error in errors.items()}
