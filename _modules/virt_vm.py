"""
Show one VM of this hypervisor; nothing is changed.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import lifecycle
    from saltvirt.vm.guest.host import inguest
    from saltvirt.vm.show.host import inspect
    from saltvirt.xml.edit import readdomain

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _root(conn, name):
    return readdomain.domain(lifecycle.xml(conn, name))


def get_xml(vm_, **kwargs):
    """
    Return a VM's XML as libvirt has it, without secrets.

    vm_
        The VM's name.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_xml centos1
    """
    with _module.connection("virt.get_xml", kwargs, readonly=True) as conn:
        return lifecycle.xml(conn, vm_)


def get_disks(vm_, **kwargs):
    """
    Return a VM's disks.

    vm_
        The VM's name.

    Returns ``{target: {file, type, "file format", "virtual size", "disk size", "cluster size",
    snapshots, "backing file"}}``; sizes in bytes. ``file`` is ``POOL/VOLUME`` for a disk in a
    running pool, and a remote medium's URL; ``backing file`` has the same fields of the file below.
    Empty drives are left out.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_disks centos1
    """
    name = arguments.text("name", vm_)
    with _module.connection("virt.get_disks", kwargs, readonly=True) as conn:
        return inspect.vm_info(conn, name)[name]["disks"]


def get_nics(vm_, **kwargs):
    """
    Return the network interfaces of a VM's definition, without live additions of libvirt.

    vm_
        The VM's name.

    Returns ``{mac: {type, mac, source, model, address}}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_nics centos1
    """
    with _module.connection("virt.get_nics", kwargs, readonly=True) as conn:
        return readdomain.nics(readdomain.domain(lifecycle.inactive_xml(conn, vm_)))


def get_macs(vm_, **kwargs):
    """
    Return the MAC addresses of a VM.

    vm_
        The VM's name.

    Returns a list of addresses.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_macs centos1
    """
    with _module.connection("virt.get_macs", kwargs, readonly=True) as conn:
        return readdomain.macs(_root(conn, vm_))


def get_graphics(vm_, **kwargs):
    """
    Return a VM's display; of several, the last value of each field.

    vm_
        The VM's name.

    Returns ``{autoport, keymap, listen, port, type}``, each ``"None"`` if unset, and present
    further fields: ``tlsPort``, ``websocket``, ``socket``, ...; never its password.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_graphics centos1
    """
    with _module.connection("virt.get_graphics", kwargs, readonly=True) as conn:
        return readdomain.graphics(_root(conn, vm_))


def get_loader(vm_, **kwargs):
    """
    Return a VM's firmware.

    vm_
        The VM's name.

    Returns ``{path: str}`` with the loader's attributes; ``"None"`` for the built-in BIOS.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_loader centos1
    """
    with _module.connection("virt.get_loader", kwargs, readonly=True) as conn:
        return readdomain.loader(_root(conn, vm_))


def console_log(vm_, lines=20):
    """
    Return the end of a VM's serial console.

    vm_
        The VM's name.
    lines
        How many lines at most. Defaults to 20.

    Returns the text. Fails if the VM's console is not logged (``virt:console_log``).

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.console_log centos1
    """
    name, count = arguments.vm_name(vm_), arguments.whole_number("lines", lines, most=10000)
    return inguest.read_console_tail(name, count)


optionguard.modules(globals())
