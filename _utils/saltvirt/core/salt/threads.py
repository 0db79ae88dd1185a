"""Threads for Salt's functions, which find their loader through context variables."""

import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

_T = TypeVar("_T")


def begin(pool: Executor, work: Callable[..., _T], *args: object) -> "Future[_T]":
    """Have a thread of a pool do work in the caller's context, which it does not inherit."""
    return pool.submit(contextvars.copy_context().run, work, *args)
