"""What the functions of an execution module or of states need: options, libvirt, the master."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import compat
from saltvirt.core.salt.context import Context
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.libvirt import connect

with lazy_imports():
    from saltvirt.storage import sharing


def load_with_libvirt() -> bool | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else True


def load_everywhere() -> bool:
    """Load on each minion; functions fail where the host lacks what they need."""
    return True


def read_file(argument: str, path: object) -> str:
    """Return the text of a file that an argument names; raise BadArgument if it is unreadable."""
    try:
        return Path(arguments.text(argument, path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadArgument(argument, f"{path}: {exc}") from exc


def login(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``connection``, ``username`` and ``password`` among a state's arguments."""
    return {key: keywords[key] for key in config.CONNECTION if keywords[key] is not None}


class HostModule:
    """
    A file of execution modules or states, with the options that Salt's loader gives it.

    namespace
        The file's ``globals()``.

    Of all methods: ``function`` is the name for errors, such as ``virt.start``, and ``keywords``
    are what is left of the call's keyword arguments; these may be ``connection``, ``username`` and
    ``password``, and BadArgument is raised for others.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace

    @property
    def _sources(self) -> tuple[Any, Any, Any]:
        namespace = self._namespace
        return namespace["__opts__"], namespace["__pillar__"], namespace["__grains__"]

    @property
    def is_test(self) -> bool:
        """Whether states only say what they would change."""
        return bool(self._namespace["__opts__"]["test"])

    def settings(
        self, function: str = "", keywords: Mapping[str, Any] | None = None
    ) -> HostSettings:
        """Return the options of this hypervisor for a call."""
        return config.for_call(function, keywords or {}, *self._sources)

    def context(
        self, keywords: Mapping[str, Any] | None = None, *, asks_master: bool = False
    ) -> Context:
        """
        Return the context of a call.

        asks_master
            Whether the call may ask the master for pillar data. Defaults to False.
        """
        ask, override = compat.ask_pillar if asks_master else None, keywords or {}
        return Context.of(*self._sources, self._namespace["__salt__"], ask=ask, **override)

    @contextmanager
    def connection(
        self, function: str, keywords: Mapping[str, Any], *, readonly: bool = False
    ) -> Iterator[Any]:
        """Yield a connection to libvirt, for a call that needs no other option of the host."""
        settings = config.connection_settings(function, keywords, *self._sources)
        with connect.open_connection(settings, readonly=readonly) as conn:
            yield conn

    @contextmanager
    def opened(
        self,
        function: str = "",
        keywords: Mapping[str, Any] | None = None,
        *,
        readonly: bool = False,
    ) -> Iterator[tuple[Any, HostSettings]]:
        """Yield a connection to libvirt, and the options of this hypervisor."""
        settings = self.settings(function, keywords)
        with connect.open_connection(settings, readonly=readonly) as conn:
            yield conn, settings

    def run_or_ask(
        self,
        function: str,
        keywords: dict[str, Any],
        work: Callable[[Any, HostSettings, Any], Any],
        *,
        readonly: bool = False,
    ) -> Any:
        """
        Return the result of ``work``, or the files that the master has to ask all hosts about.

        work
            Takes a connection to libvirt, the options of this hypervisor, and the other hosts'
            answers: those of the keyword ``replies``, which only the master's order has.
        """
        replies = keywords.pop("replies", None)
        settings = self.settings(function, keywords)

        def connected_work(other_hosts: Any) -> Any:
            with connect.open_connection(settings, readonly=readonly) as conn:
                return work(conn, settings, other_hosts)

        return sharing.run_or_ask(replies, connected_work)

    def reports_errors(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that returns its errors as data if it is called with ``report``."""

        @functools.wraps(function)
        def reporting(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except VirtError as error:
                if not kwargs.get("report"):
                    raise
                self._namespace["__context__"]["retcode"] = 1
                return error.to_dict()

        return reporting
