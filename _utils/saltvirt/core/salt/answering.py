"""The master's orders to a host, and the host's signed answers."""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from salt.exceptions import SaltException

from saltvirt.core import files, locks, wire
from saltvirt.core.crypto import keypair, signed
from saltvirt.core.errors import BadArgument, FunctionMissing, VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import gctuning

_BEGUN, _REFUSED = "begun", "refused"
# Our answers to the master about an order that was begun.
_RUNNING, _OVER = "running", "over"
# At least this many of the last ids are kept, and at most twice as many.
_KEPT = 5000


def _home(settings: HostSettings) -> Path:
    return Path(settings.state_dir) / "orders"


def _check_id(order_id: object) -> str:
    if not isinstance(order_id, str) or not re.fullmatch("[0-9a-f]{32}", order_id):
        raise BadArgument("id", f"{order_id!r} is not the id of an order")
    return order_id


def _read_state(home: Path, order_id: str) -> str | None:
    """Return the recorded state of an order, None if there is none."""
    for folder in ("new", "old"):
        try:
            return (home / folder / order_id).read_text()
        except FileNotFoundError:
            continue
    return None


def _note(home: Path, order_id: str, state: str) -> None:
    """Record an order's state; old ids are dropped by count, as the clock may be wrong."""
    with locks.hold_lock(home / "notes.lock"):
        try:
            _write(home, order_id, state)
        except OSError as exc:
            raise files.write_error(f"cannot note the master's order in {home}", exc) from exc


def _write(home: Path, order_id: str, state: str) -> None:
    new_folder, old_folder = home / "new", home / "old"
    if new_folder.exists() and sum(1 for _ in new_folder.iterdir()) >= _KEPT:
        shutil.rmtree(old_folder, ignore_errors=True)
        new_folder.rename(old_folder)
    new_folder.mkdir(mode=0o700, exist_ok=True)
    files.write(new_folder / order_id, state.encode())
    # The folders may be new, too.
    files.sync_folder(home)
    files.sync_folder(home.parent)


@contextmanager
def begin_order(settings: HostSettings, order_id: str) -> Iterator[None]:
    """Record that an order begins, and hold its lock; raise VirtError if it must not begin."""
    home, order_id = _home(settings), _check_id(order_id)
    with locks.hold_lock(home / f"{order_id}.lock", wait=False) as handle:
        if handle is None or _read_state(home, order_id):
            raise VirtError("the master has given this order up, or it was begun before")
        _note(home, order_id, _BEGUN)
        yield


def refuse_order(settings: HostSettings, order_id: str) -> str:
    """Record that an order never begins: ``refused``; if it has begun: ``running``, ``over``."""
    home, order_id = _home(settings), _check_id(order_id)
    with locks.hold_lock(home / f"{order_id}.lock", wait=False) as handle:
        if handle is None:
            return _RUNNING
        state = _read_state(home, order_id)
        if state:
            return _OVER if state == _BEGUN else _REFUSED
        _note(home, order_id, _REFUSED)
        return _REFUSED


log = logging.getLogger(__name__)
_SELF = "virt.signed"
# Salt's own functions that the runner may call, with the first argument each must have.
_SALT_FUNCTIONS = {"saltutil.find_job": None, "state.single": "virt.keys"}
# All arguments that state may get: with onlyif, unless and the like Salt would run any command.
_STATE_ARGUMENTS = frozenset({"name", "renew"})


_IS_ORDERED = ContextVar("is_ordered", default=False)


def is_ordered() -> bool:
    """
    Return whether the running function was called through ``virt.signed``, as the runner does.

    A caller allowed to call ``virt.signed`` may change VMs; a caller of a read-only function may
    not.
    """
    return _IS_ORDERED.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """
    A function with its arguments, which may be secret and are left out of the ``repr``.

    id
        The order's id, by which the master can give it up; empty for a read-only question.
    """

    fun: str
    arg: list[Any] = field(default_factory=list, repr=False)
    kwarg: dict[str, Any] = field(default_factory=dict, repr=False)
    id: str = ""


def _read_private_key(opts: Mapping[str, Any]) -> bytes:
    return (Path(opts["pki_dir"]) / "minion.pem").read_bytes()


def sign(opts: Mapping[str, Any], subject: str, **fields: Any) -> dict[str, str]:
    """Return this minion's signed statement about a job or an event; see :func:`signed.pack`."""
    statement = signed.SignedAnswer(minion=opts["id"], about=subject, **fields)
    return signed.pack(statement, _read_private_key(opts))


def answer(
    opts: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    context: MutableMapping[str, Any],
    jid: str,
    order: object,
    settings: Callable[[], HostSettings],
) -> dict[str, str]:
    """
    Run the ordered function; return the signed answer, or the signed error in its place.

    settings
        Returns the options of this host; called for orders, not for questions.
    """
    request = _read_order(opts, order)
    _refuse_others(request)
    context.pop("retcode", None)
    value: Any = None
    error: Exception | None
    with gctuning.collect_rarely():
        if request.fun in functions:
            value, error = _call_function(functions, request, settings)
        else:
            error = FunctionMissing(request.fun)
        code = int(context.get("retcode") or 0) or (1 if error is not None else 0)
        if code:
            context["retcode"] = code
        fields = {"fun": request.fun, "value": value, "retcode": code}
        if error is not None:
            fields |= {"why": _text(error), "kind": type(error).__name__}
        return sign(opts, jid, **fields)


def _read_order(opts: Mapping[str, Any], order: object) -> Order:
    if keypair.is_sealed(order):
        order = json.loads(keypair.unseal(str(order), _read_private_key(opts).decode()))
    request: Order = wire.argument("order", Order, order)
    return request


def _refuse_others(request: Order) -> None:
    required_argument = _SALT_FUNCTIONS.get(request.fun)
    is_ours = request.fun.startswith("virt.") and request.fun != _SELF
    is_known = request.fun in _SALT_FUNCTIONS and (
        required_argument is None or request.arg == [required_argument]
    )
    is_known = is_known and _STATE_ARGUMENTS.issuperset(request.kwarg)
    if not is_ours and not is_known:
        raise BadArgument("order", f"{request.fun!r} is not a function of virt")


def _call_function(
    functions: Mapping[str, Callable[..., Any]],
    request: Order,
    settings: Callable[[], HostSettings],
) -> tuple[Any, Exception | None]:
    token = _IS_ORDERED.set(True)
    try:
        with begin_order(settings(), request.id) if request.id else nullcontext():
            return functions[request.fun](*request.arg, **request.kwarg), None
    except Exception as error:  # every job must end with an answer
        if not isinstance(error, SaltException | TypeError):
            log.exception("%s failed", request.fun)
        return None, error
    finally:
        _IS_ORDERED.reset(token)


def _text(error: Exception) -> str:
    """Return an error as Salt writes it."""
    is_expected = isinstance(error, SaltException | TypeError)
    return str(error) if is_expected else f"{type(error).__name__}: {error}"
