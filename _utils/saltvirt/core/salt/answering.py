"""Signed answers of a host: run one of our functions for the master's runner, sign the result."""

import json
import logging
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from salt.exceptions import SaltException

from saltvirt.core import wire
from saltvirt.core.crypto import sealed, signed
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import gctuning, ordered

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
    value, error = None, None
    with gctuning.collect_rarely():
        if request.fun in functions:
            value, error = _call_function(functions, request, settings)
        else:
            error = f"'{request.fun}' is not available."
        code = int(context.get("retcode") or 0) or (1 if error is not None else 0)
        if code:
            context["retcode"] = code
        fields = {"fun": request.fun, "value": value, "why": error, "retcode": code}
        return sign(opts, jid, **fields)


def _read_order(opts: Mapping[str, Any], order: object) -> Order:
    if sealed.is_sealed(order):
        order = json.loads(sealed.unseal(str(order), _read_private_key(opts).decode()))
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
) -> tuple[Any, str | None]:
    token = _IS_ORDERED.set(True)
    try:
        with ordered.begin(settings(), request.id) if request.id else nullcontext():
            return functions[request.fun](*request.arg, **request.kwarg), None
    except (SaltException, TypeError) as error:
        return None, str(error)
    except Exception as error:  # every job must end with an answer
        log.exception("%s failed", request.fun)
        return None, f"{type(error).__name__}: {error}"
    finally:
        _IS_ORDERED.reset(token)
