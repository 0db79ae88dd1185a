"""Open connections to libvirt, in one place."""

import contextlib
import errno
import functools
import importlib
import os
import pwd
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, BadConfig, HostUnreachable, LibvirtRefused, NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import lazyimport

# A module that only libvirt-python has. Salt's loader puts the folder of a loaded file on the path:
# without libvirt-python, ``import libvirt`` would find Salt's own cloud driver or pillar.
_PROOF = "libvirtmod"
try:
    importlib.import_module(_PROOF)
    import libvirt as libvirt
except ImportError:
    libvirt = lazyimport.OptionalModule("libvirt", proof=_PROOF)

MISSING = (
    "virt: the Python module 'libvirt' is missing on this minion; install it with "
    "'salt-pip install libvirt-python' or the distribution's python3-libvirt"
)
# Fixed by saltstack/salt 66908; 64962, 65694 and 67088 describe the bug.
_OLD_ONEDIR = "Salt's packages 3006.2 to 3006.9 lack what RHEL's libldap wants: update Salt"
_ANOTHER_PYTHON = (
    "install it again for Salt's Python: salt-pip install --force-reinstall libvirt-python"
)


def why_missing() -> str | None:
    """Return the reason why libvirt cannot be used here, or None if it can."""
    if lazyimport.is_missing(libvirt):
        return MISSING
    load_error = lazyimport.why_broken(libvirt)
    if load_error is None:
        return None
    remedy = _OLD_ONEDIR if "EVP_md2" in load_error else _ANOTHER_PYTHON
    return f"virt: the Python module 'libvirt' cannot be loaded: {load_error}; {remedy}"


_QEMU = "qemu:///system"
# QEMU's driver, the test driver, and ``remote``: any driver of a remote daemon.
_DRIVERS = ("qemu", "test", "remote")
_VARIABLE, _CONFIGURATION = "LIBVIRT_DEFAULT_URI", "libvirt/libvirt.conf"
_SYSTEM = Path("/etc")
# libvirt-python's message.
_NOT_TEXT = re.compile(r"vir\w+\(\) argument \d+ must be str or None, not (\w+)")
# Time for a daemon to accept a connection. One that systemd starts on demand needs some seconds on
# a slow host; without a limit, a hanging daemon would block the caller without end.
OPEN_S = 30
# Interval and number of keepalive probes to a daemon on another host.
_KEEPALIVE_S, _KEEPALIVES = 5, 3
_DEFAULT = re.compile(r'^[ \t]*uri_default[ \t]*=[ \t]*"([^"\n]*)"', re.M)


@contextmanager
def open_connection(settings: HostSettings, *, readonly: bool = True) -> Iterator[Any]:
    """
    Yield an open libvirt connection; raise HostUnreachable if there is none within 30 seconds.

    An error of libvirt inside the block is raised as :class:`LibvirtRefused` with its message.
    """
    # Without a handler, libvirt prints every error to standard error.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    uri = settings.uri or default_uri()
    refuse_other_drivers(uri)
    is_remote = _is_remote(uri)
    if is_remote:
        answer_keepalives()
    try:
        conn = open_in_time(functools.partial(_open, settings, uri, readonly), uri)
        if is_remote:
            conn.setKeepAlive(_KEEPALIVE_S, _KEEPALIVES)
    except TimeoutError as exc:
        raise HostUnreachable(uri, exc) from exc
    except libvirt.libvirtError as exc:
        raise HostUnreachable(uri, exc, _user() if _is_access_denied(exc) else None) from exc
    try:
        with refusals():
            yield conn
    finally:
        # Closing a connection that was cut fails.
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()


def _is_remote(uri: str) -> bool:
    """Return whether a URI names another host."""
    return re.match(r"[a-z0-9]+(\+[a-z0-9]+)?://[^/?#]", uri, re.IGNORECASE) is not None


class _Request:
    """A requested connection, with the time limit that libvirt itself lacks."""

    def __init__(self, key: Any, opening: Callable[[], Any]) -> None:
        self._key, self._opening = key, opening
        self._lock, self._is_given_up = threading.Lock(), False
        self._is_done = threading.Event()
        self.conn: Any = None
        self.error: Exception | None = None

    def open(self) -> None:
        """Open the connection; close it again if the caller has given up."""
        conn = None
        try:
            conn = self._opening()
        except Exception as exc:  # the waiting thread raises it
            self.error = exc
        with self._lock:
            self.conn = conn
            _HUNG.pop(self._key, None)
            if self._is_given_up and conn is not None:
                with contextlib.suppress(libvirt.libvirtError):
                    conn.close()
        self._is_done.set()

    def wait(self, limit_s: float) -> bool:
        """Return whether libvirt answers within a time."""
        return self._is_done.wait(limit_s)

    def result(self, limit_s: float) -> Any:
        """Return the connection, or raise libvirt's error; TimeoutError if the daemon hangs."""
        self.wait(limit_s)
        with self._lock:
            if self.error is not None:
                raise self.error
            if self.conn is None:
                self._is_given_up = True
                _HUNG[self._key] = self
                raise TimeoutError
            return self.conn


class _Opener(threading.Thread):
    """
    A thread that opens connections, one after the other, and never ends.

    A thread that ends frees memory of GLib under a lock: a process that forks at that moment would
    never get the lock.
    """

    def __init__(self) -> None:
        super().__init__(name="libvirt-open", daemon=True)
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self._requests.get().open()
            _IDLE.setdefault(os.getpid(), []).append(self)

    def give(self, request: _Request) -> None:
        """Queue a request."""
        self._requests.put(request)


# By process id: a forked process does not have its parent's threads.
_IDLE: dict[int, list[_Opener]] = {}
# Per URI at most one thread waits for a hanging daemon, even in a long-lived process.
_HUNG: dict[Any, _Request] = {}


def open_in_time(opening: Callable[[], Any], uri: str) -> Any:
    """
    Return the connection that a call of libvirt opens; raise TimeoutError after 30 seconds.

    opening
        Calls libvirt, and returns the connection.
    uri
        The daemon: while an earlier call for it hangs, no other call starts.
    """
    key = (os.getpid(), uri)
    timeout = TimeoutError(f"no answer within {OPEN_S} s")
    hung_request = _HUNG.get(key)
    if hung_request is not None and not hung_request.wait(OPEN_S):
        raise timeout
    request = _Request(key, opening)
    _idle_opener().give(request)
    try:
        return request.result(OPEN_S)
    except TimeoutError:
        raise timeout from None


def _idle_opener() -> _Opener:
    try:
        return _IDLE.setdefault(os.getpid(), []).pop()
    except IndexError:
        opener = _Opener()
        opener.start()
        return opener


_LOOP = threading.Lock()
_LOOPS: list[threading.Thread] = []


def answer_keepalives() -> None:
    """Run libvirt's event loop in this process, once: keepalive needs it."""
    with _LOOP:
        if not _LOOPS:
            libvirt.virEventRegisterDefaultImpl()
            _LOOPS.append(threading.Thread(target=_loop, daemon=True))
            _LOOPS[0].start()


def _loop() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


def _is_access_denied(exc: Any) -> bool:
    """Return whether libvirt refused this user a connection."""
    codes = (
        libvirt.VIR_ERR_AUTH_FAILED,
        libvirt.VIR_ERR_AUTH_CANCELLED,
        libvirt.VIR_ERR_AUTH_UNAVAILABLE,
        libvirt.VIR_ERR_ACCESS_DENIED,
    )
    is_system_error = exc.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR
    is_denied = is_system_error and exc.get_int1() in (errno.EACCES, errno.EPERM)
    return is_denied or exc.get_error_code() in codes


def _user() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def refusals() -> Iterator[None]:
    """
    Raise errors of libvirt inside the block as :class:`LibvirtRefused`.

    A LibvirtRefused of this project becomes a ``libvirt.libvirtError``, too.

    A value of another type where libvirt takes text raises :class:`BadArgument`: YAML reads the
    name ``101`` of a pool as a number.
    """
    try:
        yield
    except libvirt.libvirtError as exc:
        raise _to_refusal(exc) from exc
    except LibvirtRefused as exc:
        raise _as_libvirt_error(exc) from exc
    except TypeError as exc:
        match = _NOT_TEXT.match(str(exc))
        if match is None:
            raise
        raise BadArgument(
            "a name, a path or XML",
            f"is of type {match[1]}, where libvirt takes text; quote a number, on a command line "
            "twice: \"'101'\"",
        ) from exc


def default_uri() -> str:
    """
    Return the default URI: libvirt's own configuration's, else QEMU's.

    Without a configured URI, libvirt itself would take the first driver that it finds.
    """
    if os.environ.get(_VARIABLE):
        return os.environ[_VARIABLE]
    path = (_SYSTEM if os.geteuid() == 0 else _own_folder()) / _CONFIGURATION
    try:
        file_stat = path.stat()
        return _read_default_uri(path, file_stat.st_mtime_ns, file_stat.st_ino, file_stat.st_size)
    except FileNotFoundError:
        return _QEMU
    except OSError as exc:
        raise HostUnreachable(f"the uri_default of {path}", exc.strerror) from exc


def _own_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


@functools.lru_cache(maxsize=4)
def _read_default_uri(path: Path, *_file_version: int) -> str:
    """Return a file's ``uri_default``; cached by the file's version, as callers ask often."""
    text = path.read_text(encoding="utf-8", errors="replace")
    uris = [match[1] for match in _DEFAULT.finditer(text)]
    return uris[-1] if uris and uris[-1] else _QEMU


def refuse_other_drivers(uri: str) -> None:
    """Raise BadConfig for a driver other than QEMU's, such as Xen, ESX or bhyve."""
    scheme, colon, _location = uri.partition(":")
    driver = scheme.partition("+")[0].lower()
    # Without a colon, the URI is one of libvirt's aliases.
    if colon and driver not in _DRIVERS:
        raise BadConfig(
            f"libvirt's driver {driver!r} is not supported, only QEMU's is; set "
            f"virt:connection:uri to {_QEMU}"
        )


def _to_refusal(exc: Any) -> LibvirtRefused:
    """Return our error with libvirt's message, which also has the interface of libvirt's error."""
    words = terminal.message(exc)
    refusal: LibvirtRefused = _combined_error_class(libvirt.libvirtError)(words)
    # libvirt-python's constructor takes the last error's message, perhaps one of an undo.
    refusal.args = (words, *refusal.args[1:])
    # libvirt-python's accessors, such as get_error_code, read ``err``.
    refusal.err = exc.err
    return refusal


def _as_libvirt_error(exc: LibvirtRefused) -> LibvirtRefused:
    """Return our error as libvirt's, too: the VM's state forbids the operation."""
    words, code = str(exc), libvirt.VIR_ERR_OPERATION_INVALID
    refusal: LibvirtRefused = _combined_error_class(libvirt.libvirtError)(words)
    refusal.args = (words, *refusal.args[1:])
    # libvirt's order: code, domain, message, level, three texts, two numbers.
    error = (code, libvirt.VIR_FROM_DOM, words, libvirt.VIR_ERR_ERROR, words, None, None, -1, -1)
    refusal.err = error
    return refusal


@functools.cache
def _combined_error_class(libvirt_error: type[Exception]) -> type[LibvirtRefused]:
    """Return a LibvirtRefused that is a ``libvirt.libvirtError``, too, for Salt 3006's callers."""
    return type(
        LibvirtRefused.__name__,
        (LibvirtRefused, libvirt_error),
        {"__doc__": LibvirtRefused.__doc__},
    )


def _open(settings: HostSettings, uri: str, readonly: bool) -> Any:
    if settings.username:
        credential_types = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]

        def answer(credentials: Iterable[Any], _data: object) -> int:
            for credential in credentials:
                is_name = credential[0] == libvirt.VIR_CRED_AUTHNAME
                credential[4] = settings.username if is_name else settings.password
            return 0

        flags = libvirt.VIR_CONNECT_RO if readonly else 0
        return libvirt.openAuth(uri, [credential_types, answer, None], flags)
    return libvirt.openReadOnly(uri) if readonly else libvirt.open(uri)


def domain(conn: Any, name: str) -> Any:
    """Return a domain by name; raise NoSuchVm if the host has none."""
    try:
        return conn.lookupByName(arguments.text("name", name))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            raise NoSuchVm(name) from exc
        raise
