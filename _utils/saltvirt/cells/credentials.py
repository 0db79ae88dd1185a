"""Read this master's login at a cell from a file that only root and its user may read."""

import os
import pwd
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from saltvirt.cells.registry import Cell
from saltvirt.core.errors import BadConfig

_MOST_BYTES = 65536
_KINDS = ({"token"}, {"username", "password", "eauth"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """
    The login of this master at a cell's salt-api.

    low
        The fields that each call sends; never shown.
    shown_user
        What messages may show.
    """

    low: Mapping[str, str] = field(repr=False)
    shown_user: str


class CredentialsExposed(BadConfig):
    """
    Other users can get at the credentials file; messages show nothing from it.

    problem, fix
        The message in two parts: the problem, and the command that mends it.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; run: {fix}")
        self.problem, self.fix = problem, fix


def owner(opts: Mapping[str, Any]) -> pwd.struct_passwd:
    """Return the user that the master runs as."""
    return pwd.getpwnam(opts.get("user") or "root")


def read(cell: Cell, opts: Mapping[str, Any]) -> Credentials:
    """Return the credentials for a cell; raise BadConfig, which shows none of their content."""
    option, path = f"option virt:cells:{cell.name}:credentials", Path(cell.credentials)
    text = _read_content(option, path, owner(opts))
    try:
        login = yaml.safe_load(text)
    except yaml.YAMLError:
        login = None
    is_good = isinstance(login, dict) and set(login) in _KINDS
    if not is_good or not all(isinstance(value, str) and value for value in login.values()):
        raise BadConfig(
            f"{option}: {path} must have username, password and eauth, or token, each as text"
        )
    return Credentials(low=login, shown_user=repr(login.get("username", "with that token")))


def _read_content(option: str, path: Path, user: pwd.struct_passwd) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, encoding="utf-8", errors="replace") as file:
        status = os.fstat(handle)
        reason = _explain_exposure(status, user)
        if reason:
            quoted_path = shlex.quote(str(path))
            raise CredentialsExposed(
                f"{option}: {path} {reason}",
                f"chown {user.pw_name}: {quoted_path} && chmod 600 {quoted_path}",
            )
        return file.read(_MOST_BYTES)


def _explain_exposure(status: os.stat_result, user: pwd.struct_passwd) -> str | None:
    """Return how other users can get at a file, None if they cannot."""
    if not stat.S_ISREG(status.st_mode):
        return "is no file"
    if status.st_uid not in (0, user.pw_uid):
        return "belongs to another user than the master's"
    is_open_to_group = status.st_gid not in (0, user.pw_gid) and status.st_mode & stat.S_IRWXG
    if is_open_to_group or status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        return f"is open to other users ({stat.S_IMODE(status.st_mode):04o})"
    return None
