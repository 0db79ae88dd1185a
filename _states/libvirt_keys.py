"""
The state ``libvirt.keys``, another name of ``virt.keys``.

.. versionadded:: 1.0.0
"""

from typing import Any

from saltvirt.core.options import optionguard
from saltvirt.core.salt import statereturn

# The file itself must not be libvirt.py: Salt has its folder in Python's path while it loads a
# state, and "import libvirt" would find it where libvirt's own module is missing.
__virtualname__ = "libvirt"
__states__: Any
__func_alias__ = {"keys_": "keys"}


def __virtual__() -> str:
    """Load everywhere: the keys may be installed before libvirt."""
    return __virtualname__


def keys_(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Keep this hypervisor's TLS keys and certificates in order: another name of ``virt.keys``.

    name
        Any name. All other arguments are those of ``virt.keys``.

    .. code-block:: yaml

        libvirt_keys:
          libvirt.keys
    """
    if "virt.keys" not in __states__:
        reason = "the state virt.keys is not loaded; run: salt-call saltutil.sync_states"
        return statereturn.make_failure(name, reason)
    result: dict[str, Any] = __states__["virt.keys"](name=name, **kwargs)
    return result


optionguard.states(globals())
