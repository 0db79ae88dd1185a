"""
Another name of the states that keep a hypervisor's keys in order.

.. versionadded:: 1.0.0
"""

from typing import Any

from saltvirt import optionguard, statereturn

# Not this file's own name: Salt has the folder in Python's path while it loads a state, where
# libvirt's own module is missing "import libvirt" would find it.
__virtualname__ = "libvirt"
__states__: Any
__func_alias__ = {"keys_": "keys"}


def __virtual__() -> str:
    """Load everywhere: the keys may be laid down before libvirt is."""
    return __virtualname__


def keys_(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Keep this hypervisor's TLS keys and certificates in order: another name of ``virt.keys``.

    name
        Any name. All else is as of ``virt.keys``.

    .. code-block:: yaml

        libvirt_keys:
          libvirt.keys
    """
    if "virt.keys" not in __states__:
        return statereturn.make_failure(name, "the state virt.keys is not loaded; sync the states")
    result: dict[str, Any] = __states__["virt.keys"](name=name, **kwargs)
    return result


optionguard.states(globals())
