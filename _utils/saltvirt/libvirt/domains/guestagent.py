"""Talk to the agent in a guest, through QEMU's channel."""

import importlib
import json
from collections.abc import Mapping
from typing import Any

from saltvirt.core.errors import GuestSilent, LibvirtRefused
from saltvirt.core.salt import lazyimport
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import guestanswers
from saltvirt.libvirt.errorcodes import has_code
from saltvirt.xml import parse
from saltvirt.xml.edit import readdomain

# A module that only that part of libvirt-python has; see connect.py.
_PROOF = "libvirtmod_qemu"
try:
    importlib.import_module(_PROOF)
    import libvirt_qemu as libvirt_qemu
except ImportError:
    libvirt_qemu = lazyimport.OptionalModule("libvirt_qemu", proof=_PROOF)

CHANNEL = "org.qemu.guest_agent.0"
# Time for one answer; an unresponsive guest must not block its host.
_ANSWER_S = 10


class Agent:
    """The agent of one running VM."""

    def __init__(self, conn: Any, name: str) -> None:
        """Raise a VirtError that names what is missing, unless the VM's agent listens."""
        self._domain, self._name = domain(conn, name), name
        if not self._domain.isActive():
            raise LibvirtRefused(f"VM {name!r} is not running, so its guest agent cannot answer")
        root = parse(self._domain.XMLDesc(0))
        if not readdomain.has_agent_channel(root):
            raise GuestSilent(
                f"VM {name!r} has no channel {CHANNEL}, by which the agent in its guest is "
                "reached; docs/guest-agent.md says how to add one"
            )
        if not readdomain.has_agent(root):
            raise GuestSilent(
                f"no guest agent listens in VM {name!r} on its channel {CHANNEL}: install the "
                "package qemu-guest-agent in the guest, and start it"
            )

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """
        Return a command's result from the agent, checked by
        :mod:`saltvirt.libvirt.domains.guestanswers`.
        """
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            text = libvirt_qemu.qemuAgentCommand(self._domain, json.dumps(request), _ANSWER_S, 0)
        except libvirt.libvirtError as exc:
            error = self._error(command, exc)
        else:
            return guestanswers.parse_return(command, text)
        # ``from None``: the message of libvirt's error may be the guest's text.
        raise error from None

    def _error(self, command: str, exc: Any) -> GuestSilent | LibvirtRefused:
        words = guestanswers.cut_text(str(exc))
        if has_code(exc, "AGENT_UNRESPONSIVE", "AGENT_UNSYNCED"):
            return GuestSilent(
                f"the agent in VM {self._name!r} does not answer {command}: {words}; see whether "
                "qemu-guest-agent runs in the guest"
            )
        return LibvirtRefused(f"the agent in VM {self._name!r} did not do {command}: {words}")
