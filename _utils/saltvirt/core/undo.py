"""Undo completed steps when a later step fails, or run each step whether or not another fails."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from saltvirt.core.errors import VirtError
from saltvirt.core.salt import masteruser

log = logging.getLogger(__name__)
_Handler = Callable[[int, FrameType | None], object]
# The former handler of each signal, as Python's signal module returns it.
_Handlers = dict[int, Any]
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_IT = b"Ending already: what was begun is taken back or finished first; please wait.\n"


class Steps:
    """
    The undo actions registered so far, newest last.

    ``failed`` are the actions that failed, as text: their leftovers are still there, and a record
    of them must not end.
    """

    def __init__(self) -> None:
        self._actions: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.failed: list[str] = []

    def undo_with(self, action: Callable[..., object], *args: object) -> None:
        """Register how to undo the step that has just succeeded."""
        self._actions.append((action, args))

    def run(self) -> bool:
        """
        Undo everything, newest first; log an action that fails, and go on.

        Returns whether everything is undone.
        """
        with undisturbed():
            while self._actions:
                action, args = self._actions.pop()
                try:
                    action(*args)
                except Exception as exc:  # the other steps must still run
                    self.failed.append(f"{action.__name__}({_plain(args)}): {exc}")
                    log.error("undo step failed: %s", self.failed[-1])
        return not self.failed


def _plain(args: Iterable[object]) -> str:
    """Return the arguments that are names; others may be options with secrets."""
    return ", ".join(
        str(arg) for arg in args if isinstance(arg, str | Path) and "\n" not in str(arg)
    )


@contextmanager
def on_failure() -> Iterator[Steps]:
    """Yield :class:`Steps`; if the block raises anything, undo them and raise it again."""
    steps = Steps()
    try:
        yield steps
    except BaseException:
        steps.run()
        raise


class _SignalQueue:
    """Holds signals back, and informs their sender once."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if not self.numbers:
            log.info("told to end once more, while what was begun is undone")
            with suppress(OSError):  # a terminal that was closed
                os.write(2, _AT_IT)
        self.numbers.append(number)


class _End:
    """Ends the block at the first signal; later ones are held back while it unwinds."""

    def __init__(self) -> None:
        self.before: _Handlers = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        handler = _SignalQueue()
        for blocked_signal in self.before:
            signal.signal(blocked_signal, handler)
        if number == signal.SIGINT and callable(self.before[number]):
            self.before[number](number, frame)  # Python's or Salt's own, which prints a message
        # Not an Exception, so that no caller takes it for an error and goes on.
        raise SystemExit(128 + number)


def _has_handler(*kinds: type) -> bool:
    """Return whether the signals have such a handler already, or this is not the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return not is_main or isinstance(signal.getsignal(signal.SIGTERM), kinds)


@contextmanager
def _handle_signals(handler: _Handler) -> Iterator[_Handlers]:
    """Yield ``{signal: former handler}``; an ignored signal (nohup) stays ignored."""
    old_handlers: _Handlers = {n: signal.getsignal(n) for n in _ENDING}
    old_handlers = {n: old for n, old in old_handlers.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in old_handlers:
            signal.signal(number, handler)
        yield old_handlers
    finally:
        for number, old in old_handlers.items():
            signal.signal(number, old)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back SIGINT, SIGTERM and SIGHUP until the block ends; they take effect then."""
    if _has_handler(_SignalQueue):
        yield
        return
    handler = _SignalQueue()
    with _handle_signals(handler):
        yield
    if handler.numbers:
        signal.raise_signal(handler.numbers[0])


@contextmanager
def on_signals() -> Iterator[None]:
    """
    Let SIGTERM and SIGHUP unwind the block as Ctrl-C does, so that its undo steps run.

    Without this they kill a job. A second signal does not cut the unwinding short.
    """
    if _has_handler(_End, _SignalQueue):
        yield
        return
    end = _End()
    with _handle_signals(end) as end.before:
        yield


_Done = TypeVar("_Done")


class IndependentSteps:
    """
    The failures so far.

    failed
        One phrase for each step, with the reason.
    table
        What the steps' errors show beside their lines.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self.failed: list[str] = []
        self.table: dict[str, Any] = {}

    def take(self, failure: str, do: Callable[..., _Done], *args: Any) -> _Done | None:
        """
        Return what a step returns, None if it fails.

        failure
            The phrase for a failure, such as ``the list was not written``.
        """
        try:
            return do(*args)
        except OSError as error:
            self.failed.append(f"{failure}: {masteruser.explain_error(error, self._opts)}")
        except (VirtError, ValueError) as error:
            self.failed.append(f"{failure}: {error}")
            self.table |= getattr(error, "table", {})
        return None
