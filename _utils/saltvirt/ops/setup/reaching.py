"""Which addresses this host reaches, asked all at once and within a few seconds."""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait

LIMIT_S = 2.0
_AT_ONCE = 32

Address = tuple[str, int]


def reached(wanted: Iterable[Address], limit_s: float = LIMIT_S) -> dict[Address, str | None]:
    """
    Return why each address is not reached, None for those that are.

    limit_s
        How long a connection may take, and then the look-up of a name. Defaults to 2 seconds.
    """
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        asked = {one: pool.submit(_why_not, one, limit_s) for one in wanted}
        wait(asked.values(), timeout=2 * limit_s)
        return {one: it.result() if it.done() else "no answer" for one, it in asked.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _why_not(address: Address, limit_s: float) -> str | None:
    try:
        socket.create_connection(address, timeout=limit_s).close()
    except (OSError, ValueError, OverflowError) as exc:  # of a name that can be none, too
        return getattr(exc, "strerror", None) or str(exc)
    return None
