"""Which addresses this host reaches, and which names it knows, all asked at once, in seconds."""

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

LIMIT_S = 2.0
_AT_ONCE = 32

Address = tuple[str, int]
_Asked = TypeVar("_Asked", str, Address)


def reached(wanted: Iterable[Address], limit_s: float = LIMIT_S) -> dict[Address, str | None]:
    """
    Return why each address is not reached, None for those that are.

    limit_s
        How long a connection may take, and then the look-up of a name. Defaults to 2 seconds.
    """
    return _all(partial(_why_not, limit_s=limit_s), wanted, 2 * limit_s)


def named(wanted: Iterable[str], limit_s: float = LIMIT_S) -> dict[str, str | None]:
    """
    Return why each name leads to no address, None for those that do.

    limit_s
        How long that may take. Defaults to 2 seconds.
    """
    return _all(_why_no_name, wanted, limit_s)


def _all(
    why: Callable[[_Asked], str | None], wanted: Iterable[_Asked], limit_s: float
) -> dict[_Asked, str | None]:
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        asked = {one: pool.submit(why, one) for one in wanted}
        wait(asked.values(), timeout=limit_s)
        return {one: it.result() if it.done() else "no answer" for one, it in asked.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _why_not(address: Address, limit_s: float) -> str | None:
    try:
        socket.create_connection(address, timeout=limit_s).close()
    except (OSError, ValueError, OverflowError) as exc:  # of a name that can be none, too
        return getattr(exc, "strerror", None) or str(exc)
    return None


def _why_no_name(name: str) -> str | None:
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as exc:
        return getattr(exc, "strerror", None) or str(exc)
    return None
