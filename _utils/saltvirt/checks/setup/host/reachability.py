"""Check which addresses this host reaches, and which names it resolves, all in parallel."""

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

LIMIT_S = 2.0
_AT_ONCE = 32

Address = tuple[str, int]
_Asked = TypeVar("_Asked", str, Address)


def explain_unreached(
    addresses: Iterable[Address], limit_s: float = LIMIT_S
) -> dict[Address, str | None]:
    """
    Return why each address is not reached, None for those that are.

    limit_s
        The limit for a connection, and again for the look-up of a name. Defaults to 2 seconds.
    """
    return _ask_at_once(partial(_connection_reason, limit_s=limit_s), addresses, 2 * limit_s)


def explain_unresolved(names: Iterable[str], limit_s: float = LIMIT_S) -> dict[str, str | None]:
    """
    Return why each name does not resolve, None for those that do.

    limit_s
        The limit for all names. Defaults to 2 seconds.
    """
    return _ask_at_once(_resolution_reason, names, limit_s)


def _ask_at_once(
    explain: Callable[[_Asked], str | None], items: Iterable[_Asked], limit_s: float
) -> dict[_Asked, str | None]:
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        futures = {item: pool.submit(explain, item) for item in items}
        wait(futures.values(), timeout=limit_s)
        return {
            item: future.result() if future.done() else "no answer"
            for item, future in futures.items()
        }
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _connection_reason(address: Address, limit_s: float) -> str | None:
    try:
        socket.create_connection(address, timeout=limit_s).close()
    except (OSError, ValueError, OverflowError) as exc:  # also for invalid names
        return getattr(exc, "strerror", None) or str(exc)
    return None


def _resolution_reason(name: str) -> str | None:
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as exc:
        return getattr(exc, "strerror", None) or str(exc)
    return None
