"""Errors as types: callers match on the type, never on the text."""

from collections.abc import Iterable, Mapping
from typing import Any

from salt.exceptions import CommandExecutionError, SaltInvocationError

from saltvirt.core import terminal


class VirtError(CommandExecutionError):  # type: ignore[misc] # Salt has no types
    """
    The base of all our errors; Salt prints it as one line and exits non-zero.

    The line has no control sequences of a terminal: libvirt, guests and minions write some of it.

    table
        The table that a runner shows with that line, if there is any.
    """

    table: Mapping[str, Any]

    def __init__(self, message: object = "", info: object = None) -> None:
        super().__init__(terminal.message(message), info)

    def to_dict(self) -> dict[str, object]:
        """Return the error as plain data for the wire."""
        return {"error": str(self), "kind": type(self).__name__, "retcode": 1}


class BadArgument(VirtError, SaltInvocationError):  # type: ignore[misc] # as above
    """An argument cannot be used; the message names it, the value and what is accepted."""

    def __init__(self, argument: str, reason: str | None = None) -> None:
        super().__init__(f"{argument}: {reason}" if reason else argument)


class NotThereYet(BadArgument):
    """An argument names an object that this host does not have yet; a state may make it."""


class BadConfig(VirtError):
    """A ``virt:`` option cannot be used; the message names it."""


class OptionsMissing(VirtError):
    """Options of a host may be missing, so it refuses changes; the message says why."""


class HostUnreachable(VirtError):
    """
    libvirt on this host does not answer.

    user
        The user that libvirt does not let in, if that is the cause.
    """

    def __init__(self, uri: str, cause: object, user: str | None = None) -> None:
        super().__init__(
            f"libvirt does not answer at {uri}: {cause}; is libvirtd running on this host?"
            if user is None
            else f"libvirt does not let user {user!r} in at {uri}: {cause}; run the minion as "
            "root, or have libvirt let that user in"
        )


class LibvirtRefused(VirtError):
    """libvirt refused an operation; the message has libvirt's own words."""


class NoSuchVm(VirtError):
    """
    There is no VM of that name.

    where
        Where the master has searched; None on a host.
    """

    def __init__(
        self, name: str, where: str | None = None, silent: Iterable[str] = (), also: str = ""
    ) -> None:
        self.where, self.silent = where, tuple(silent)
        hint = (
            "virt.list_domains shows those that it has"
            if where is None
            else "salt-run virt.list shows all VMs"
        )
        super().__init__(
            f"no VM called {name!r} {where or 'on this host'}; {hint}{also and f' ({also})'}"
        )


class GuestSilent(VirtError):
    """The agent of a guest is missing or does not answer; the message says what it needs."""


class GuestAnswerRefused(VirtError):
    """The agent of a guest sent a malformed answer; none of it is used."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"the guest's answer to {command} {reason}")


class NameTaken(VirtError):
    """A VM of that name exists already, or is being made at this moment."""


class NoHostFits(VirtError):
    """
    No host can take the VM; ``reasons`` maps each host to its reason, ``cures`` is the remedy.

    nowhere
        The text for the case that no host has a reason.
    """

    def __init__(
        self,
        required: object,
        reasons: Mapping[str, str],
        cures: str = "",
        nowhere: str = "no hypervisor answers",
    ) -> None:
        self.reasons = reasons
        shown_reasons = terminal.join_some(
            (f"{host}: {reason}" for host, reason in sorted(reasons.items())), sign="; "
        )
        super().__init__(f"no host fits {required}: {shown_reasons or nowhere}{cures}")


class ReservationRefused(VirtError):
    """
    The host cannot reserve room for the VM, so the master may try another one.

    The class name goes over the wire: masters know the refusal by it.
    """

    def __init__(self, name: str, reasons: Iterable[str], cures: str = "") -> None:
        super().__init__(f"this host cannot take {name!r}: {'; '.join(reasons)}{cures}")


class ImageError(VirtError):
    """An image cannot be fetched or cannot be trusted; the message says which and why."""


class StorageError(VirtError):
    """A disk cannot be made; the message names the file."""


class NotTakenBack(StorageError):
    """
    A build failed, and something of its VM is left on its host.

    The class name goes over the wire: masters know by it that the VM may exist.
    """


class VmIncomplete(VirtError):
    """
    A VM that came by a move is incomplete.

    The class name goes over the wire: masters know by it that an operator may give the VM up.
    """


class FunctionMissing(VirtError):
    """
    A host does not have a function.

    The class name goes over the wire: masters know by it that the host needs a newer release.
    """

    def __init__(self, function: str) -> None:
        super().__init__(f"{function!r} is not available.")


class SeedError(VirtError):
    """The guest cannot be given its identity; the message says why."""


class MasterError(VirtError):
    """The Salt master cannot be asked, or its keys cannot be read."""
