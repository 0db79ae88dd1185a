"""Connections to libvirt, opened in one place."""

import functools
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from saltvirt import optional
from saltvirt.config import HostSettings
from saltvirt.errors import HostUnreachable, LibvirtRefused, NoSuchVm

# What only libvirt-python has. Salt's loader has the folder of the file it loads on the path: where
# libvirt is missing, its driver for salt-cloud and its pillar, which have that name, would be it.
_PROOF = "libvirtmod"
try:
    importlib.import_module(_PROOF)
    import libvirt as libvirt
except ImportError:
    libvirt = optional.OptionalModule("libvirt", proof=_PROOF)

MISSING = (
    "virt: the Python module 'libvirt' is missing on this minion; install it with "
    "'salt-pip install libvirt-python' or the distribution's python3-libvirt"
)
# Mended by saltstack/salt 66908; 64962, 65694 and 67088 tell of it.
_OLD_ONEDIR = "Salt's packages 3006.2 to 3006.9 lack what RHEL's libldap wants: update Salt"
_ANOTHER_PYTHON = (
    "install it again for Salt's Python: salt-pip install --force-reinstall libvirt-python"
)


def why_missing() -> str | None:
    """Return why libvirt cannot be used here, or None if it can."""
    if optional.is_missing(libvirt):
        return MISSING
    broken = optional.why_broken(libvirt)
    if broken is None:
        return None
    remedy = _OLD_ONEDIR if "EVP_md2" in broken else _ANOTHER_PYTHON
    return f"virt: the Python module 'libvirt' cannot be loaded: {broken}; {remedy}"


@contextmanager
def opened(settings: HostSettings, *, readonly: bool = True) -> Iterator[Any]:
    """
    Yield an open libvirt connection; raise HostUnreachable if there is none.

    Errors of libvirt inside the block come out as :class:`LibvirtRefused` with its own words.
    """
    # libvirt prints every error to standard error unless told otherwise.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        conn = _open(settings, readonly)
    except libvirt.libvirtError as exc:
        raise HostUnreachable(settings.uri, exc) from exc
    try:
        yield conn
    except libvirt.libvirtError as exc:
        raise _refused(exc) from exc
    finally:
        conn.close()


def _refused(exc: Any) -> LibvirtRefused:
    """Return our error with libvirt's words, and with what callers ask of its own."""
    refused: LibvirtRefused = _both(libvirt.libvirtError)(str(exc))
    # What libvirt-python asks for a code.
    refused.err = exc.err
    return refused


@functools.cache
def _both(theirs: type[Exception]) -> type[LibvirtRefused]:
    """Return LibvirtRefused for those, too, who catch ``libvirt.libvirtError``, as on Salt 3006."""
    return type(
        LibvirtRefused.__name__, (LibvirtRefused, theirs), {"__doc__": LibvirtRefused.__doc__}
    )


def _open(settings: HostSettings, readonly: bool) -> Any:
    if settings.username:
        wanted = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]

        def answer(credentials: Iterable[Any], _data: object) -> int:
            for credential in credentials:
                is_name = credential[0] == libvirt.VIR_CRED_AUTHNAME
                credential[4] = settings.username if is_name else settings.password
            return 0

        flags = libvirt.VIR_CONNECT_RO if readonly else 0
        return libvirt.openAuth(settings.uri, [wanted, answer, None], flags)
    return libvirt.openReadOnly(settings.uri) if readonly else libvirt.open(settings.uri)


def domain(conn: Any, name: str) -> Any:
    """Return a domain by name; raise NoSuchVm if the host has none."""
    try:
        return conn.lookupByName(name)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            raise NoSuchVm(name) from exc
        raise


def is_gone(exc: Any) -> bool:
    """Return whether an error says that a domain vanished while it was being read."""
    return exc.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)
