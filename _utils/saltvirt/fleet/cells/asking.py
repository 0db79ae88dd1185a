"""
Ask cells by their salt-api, several at once.

Each call is one request, with its credentials (``/run``): no session is kept. What is over in
seconds is answered at once. What takes long runs there as a job, which goes on whatever becomes of
the connection: it is asked for until it is over.
"""

import http.client
import re
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from saltvirt import connection, terminal
from saltvirt.connection import Deadline
from saltvirt.errors import VirtError
from saltvirt.fleet import masteruser, threads
from saltvirt.fleet.cells import answers, credentials
from saltvirt.fleet.cells.answers import Job
from saltvirt.fleet.cells.credentials import Credentials
from saltvirt.fleet.cells.known import LOCAL, Cell, CellFailed, Entry, usable
from saltvirt.fleet.cells.routes import MERGED, Call
from saltvirt.units import human

# Until a cell has proved who it is: one that does not in this time is silent.
_CONNECT_S = 2
_MOST_BYTES = 128 << 20
# How long one request waits for the end of a job, and for how long a cell may be silent meanwhile.
_TURN_S, _GONE_S, _PAUSE_S = 20, 120, 2
_PARALLEL = 16
_JID = re.compile(r"\d{20}(_\d+)?")
_T = TypeVar("_T")


class _Silent(CellFailed):
    """A cell does not answer; it may have heard what it was told."""


class _Unreached(CellFailed):
    """A cell is not there: nothing was said to it."""


class Unproved(CellFailed):
    """Who answers at a cell's address does not prove to be that cell: nothing was said there."""


def question(entry: Entry, opts: Mapping[str, Any], call: Call, timeout_s: float = 0) -> Any:
    """Return what a cell answers to a function that is over soon; raise CellFailed."""
    cell = usable(entry)
    limit_s = timeout_s or cell.timeout_s
    answer = _post(cell, opts, {"client": "runner", **_low(call)}, limit_s)
    return answers.of_function(cell.name, call.fun, answer)


def order(
    entry: Entry,
    opts: Mapping[str, Any],
    call: Call,
    begun: Callable[[str], None] = lambda jid: None,
) -> Any:
    """
    Return what a cell answers to a function that may take long; raise CellFailed.

    begun
        Called with the id of its job there.
    """
    cell = usable(entry)
    why = None
    try:
        said = _post(cell, opts, {"client": "runner_async", **_low(call)}, cell.timeout_s)
    except _Silent as error:
        why = error.why
    except (KeyboardInterrupt, SystemExit):
        why = "interrupted here"
    if why is not None:
        raise CellFailed(
            cell.name, f"{why}; it may have begun {call.fun} all the same, so look there first"
        )
    jid = said.get("jid") if isinstance(said, dict) else None
    if not isinstance(jid, str) or not _JID.fullmatch(jid):
        raise answers.not_understood(cell.name, "it has no 'jid'")
    try:
        begun(jid)
        return answers.of_function(cell.name, call.fun, _ended(cell, opts, call.fun, jid))
    except (KeyboardInterrupt, SystemExit):
        raise CellFailed(
            cell.name,
            f"interrupted here, and {call.fun} goes on there as job {jid}; its answer, on the "
            f"cell's master: salt-run jobs.lookup_jid {jid}",
        ) from None


def _ended(cell: Cell, opts: Mapping[str, Any], fun: str, jid: str) -> Any:
    """Wait for the end of a job and return its answer."""
    asked = Call(fun="virt.cell_job", arguments={"jid": jid, "wait_s": _TURN_S})
    heard = time.monotonic()
    while True:
        try:
            said = question(cell, opts, asked, _TURN_S + cell.timeout_s)
            job = answers.read(cell.name, Job, said)
        # Its salt-api may be restarted meanwhile: the job is its master's.
        except (_Silent, _Unreached) as error:
            if time.monotonic() - heard > _GONE_S:
                raise CellFailed(
                    cell.name,
                    f"{error.why}, for {_GONE_S} s now; it has begun {fun} as job {jid}, whose "
                    f"answer is there: salt-run jobs.lookup_jid {jid}",
                ) from None
            time.sleep(_PAUSE_S)
            continue
        except VirtError as error:
            # Who may begin something there need not be let ask for its end.
            why = error.why if isinstance(error, CellFailed) else str(error)
            raise CellFailed(
                cell.name,
                f"{why}; {fun} has begun there all the same, as job {jid}, whose answer is there: "
                f"salt-run jobs.lookup_jid {jid}",
            ) from None
        heard = time.monotonic()
        if job.state == "lost":
            raise CellFailed(
                cell.name,
                f"{fun} was ended there before it could answer (job {jid}); the same command, "
                "given again, settles what it left",
            )
        if job.state == "over":
            return job.answer


def each(cells: Mapping[str, Callable[[], _T]]) -> tuple[dict[str, _T], dict[str, VirtError]]:
    """Do something with several cells at once; return the answers, and the errors of the others."""
    out: dict[str, _T] = {}
    failed: dict[str, VirtError] = {}
    if not cells:
        return out, failed
    with ThreadPoolExecutor(min(len(cells), _PARALLEL)) as pool:
        begun = {name: threads.begin(pool, do) for name, do in cells.items()}
        for name, future in begun.items():
            try:
                out[name] = future.result()
            except VirtError as error:
                failed[name] = error
    return out, failed


def _low(call: Call) -> dict[str, Any]:
    # "local": whoever is asked asks nobody else, so no two masters ask each other for ever.
    values, given = call.as_given()
    if call.fun in MERGED:
        # To all of these None is what is not given; elsewhere it says something, as nic=None does.
        given = {key: one for key, one in given.items() if one is not None}
    cell = {} if call.fun == "virt.cell_job" else {"cell": LOCAL}
    return {"fun": call.fun, "arg": values, "kwarg": {**given, **cell}}


def _post(cell: Cell, opts: Mapping[str, Any], low: Mapping[str, Any], limit_s: float) -> Any:
    try:
        who = credentials.read(cell, opts)
    except OSError as exc:
        raise CellFailed(cell.name, masteruser.why(exc, opts)) from None
    try:
        context = ssl.create_default_context(cafile=cell.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    except (OSError, ssl.SSLError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise Unproved(cell.name, f"virt:cells:{cell.name}:ca ({cell.ca}): {why}") from None
    try:
        status, body = connection.post(
            f"{cell.url.rstrip('/')}/run",
            [{**low, **who.low}],
            context,
            Deadline(limit_s),
            connect_s=_CONNECT_S,
            most_bytes=_MOST_BYTES,
        )
    except connection.Unreached as exc:
        is_proved = not isinstance(exc.__cause__, ssl.SSLCertVerificationError)
        kind = _Unreached if is_proved else Unproved
        raise kind(cell.name, _unreached(cell, exc.__cause__)) from None
    except TimeoutError:
        raise _Silent(cell.name, f"no answer from {cell.url} within {limit_s:.0f} s") from None
    except (OSError, http.client.HTTPException) as exc:
        why = terminal.one_line(str(exc) or type(exc).__name__)
        raise _Silent(cell.name, f"no answer from {cell.url}: {why}") from None
    return _checked(cell, who, status, body)


def _unreached(cell: Cell, cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {cell.url} is not accepted: {cause.verify_message}; "
            f"virt:cells:{cell.name}:ca names who is to have signed it"
        )
    if isinstance(cause, TimeoutError):
        return f"is silent: {cell.url} did not answer within {_CONNECT_S} s"
    return f"is silent: {cell.url}: {terminal.one_line(str(cause))}"


def _checked(cell: Cell, who: Credentials, status: int, body: bytes) -> Any:
    if status in (401, 403):
        raise CellFailed(
            cell.name,
            f"refuses user {who.who} (HTTP {status}): the password there is another, or its "
            "external_auth does not let that user call this",
        )
    if len(body) > _MOST_BYTES:
        raise answers.not_understood(cell.name, f"it has more than {human(_MOST_BYTES)}")
    if status != 200:
        said = terminal.one_line(body[:500].decode(errors="replace"))
        if answers.OLD in said:
            raise answers.too_old(cell.name)
        kind = _Silent if status >= 500 else CellFailed
        raise kind(cell.name, f"its salt-api answers HTTP {status}: {said}")
    return answers.body(cell.name, body)


def failures(failed: Mapping[str, VirtError]) -> dict[str, str]:
    """Return why cells could not be asked, by cell."""
    return {cell: getattr(error, "why", str(error)) for cell, error in failed.items()}
