"""
Change the memory, CPUs and autostart of a VM.

.. versionadded:: 1.0.0
"""

from contextlib import contextmanager

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import lifecycle
    from saltvirt.vm.power.host import startlock

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


@contextmanager
def _open_locked(function, name, keywords):
    opened = _module.opened(function, keywords)
    with opened as (conn, settings), startlock.hold_definition_lock(conn, settings, name):
        yield conn


def setmem(vm_, memory, config=False, **kwargs):
    """
    Set the memory of a stopped VM.

    vm_
        The VM's name.
    memory
        MiB, or a size like ``2g``.
    config
        For a running VM, change the definition for its next start. Defaults to False.

    Returns True; fails if the VM runs and ``config`` is not given, or if it is on its way to or
    from this host, or only its definition was kept here.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.setmem centos1 768 config=True
    """
    is_config, memory_mib = arguments.boolean("config", config), arguments.memory_mib(memory)
    with _open_locked("virt.setmem", vm_, kwargs) as conn:
        lifecycle.set_memory(conn, vm_, memory_mib, config=is_config)
    return True


def setvcpus(vm_, vcpus, config=False, **kwargs):
    """
    Set the number of virtual CPUs of a stopped VM.

    vm_
        The VM's name.
    vcpus
        How many.
    config
        For a running VM, change the definition for its next start. Defaults to False.

    Returns True; fails if the VM runs and ``config`` is not given, or if it is on its way to or
    from this host, or only its definition was kept here.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.setvcpus centos1 1 config=True
    """
    is_config, count = arguments.boolean("config", config), arguments.whole_number("vcpus", vcpus)
    with _open_locked("virt.setvcpus", vm_, kwargs) as conn:
        lifecycle.set_vcpus(conn, vm_, count, config=is_config)
    return True


def set_autostart(vm_, state="on", **kwargs):
    """
    Start a VM together with its host, or stop doing so.

    vm_
        The VM's name.
    state
        ``on`` (default) or ``off``.

    Returns True; fails if there is no such VM, or if it is being moved to or from this host, or
    only its definition was kept here. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.set_autostart centos1 off
    """
    with _open_locked("virt.set_autostart", vm_, kwargs) as conn:
        lifecycle.set_autostart(conn, vm_, state)
    return True


optionguard.modules(globals())
