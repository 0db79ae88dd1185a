"""The agent in a guest, which QEMU's channel to it reaches."""

import importlib
import json
from collections.abc import Mapping
from typing import Any

from saltvirt import guestanswers, optional
from saltvirt.errors import GuestSilent, LibvirtRefused
from saltvirt.kvm.connect import domain, libvirt
from saltvirt.xml import parse, read

# What only that part of libvirt-python has; see connect.py.
_PROOF = "libvirtmod_qemu"
try:
    importlib.import_module(_PROOF)
    import libvirt_qemu as libvirt_qemu
except ImportError:
    libvirt_qemu = optional.OptionalModule("libvirt_qemu", proof=_PROOF)

CHANNEL = "org.qemu.guest_agent.0"
# One answer; a guest that goes quiet must not hold up its host.
_ANSWER_S = 10


class Agent:
    """The agent of one VM that runs."""

    def __init__(self, conn: Any, name: str) -> None:
        """Raise a VirtError that says what is missing, if the VM has no agent that listens."""
        self._domain, self._name = domain(conn, name), name
        if not self._domain.isActive():
            raise LibvirtRefused(f"VM {name!r} is not running, so nobody in it answers")
        root = parse(self._domain.XMLDesc(0))
        if not read.has_agent_channel(root):
            raise GuestSilent(
                f"VM {name!r} has no channel {CHANNEL}, by which the agent in its guest is "
                "reached; docs/guest-agent.md says how to add one"
            )
        if not read.has_agent(root):
            raise GuestSilent(
                f"nobody listens in VM {name!r} on its channel {CHANNEL}: install the package "
                "qemu-guest-agent in the guest, and start it"
            )

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Return what a command of the agent returned, as :mod:`saltvirt.guestanswers` takes it."""
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            text = libvirt_qemu.qemuAgentCommand(self._domain, json.dumps(request), _ANSWER_S, 0)
        except libvirt.libvirtError as exc:
            error = self._error(command, exc)
        else:
            return guestanswers.parse_return(command, text)
        # Without libvirt's own: its words may be the guest's.
        raise error from None

    def _error(self, command: str, exc: Any) -> GuestSilent | LibvirtRefused:
        words = guestanswers.cut_text(str(exc))
        silent_codes = (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_AGENT_UNSYNCED)
        if exc.get_error_code() in silent_codes:
            return GuestSilent(
                f"the agent in VM {self._name!r} does not answer {command}: {words}; see whether "
                "qemu-guest-agent runs in the guest"
            )
        return LibvirtRefused(f"the agent in VM {self._name!r} did not do {command}: {words}")
