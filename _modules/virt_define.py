"""
Define and start VMs from libvirt's own XML.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import lifecycle
    from saltvirt.vm.create.host import existing
    from saltvirt.vm.power.host import startlock
    from saltvirt.vm.purge.host import purge

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def undefine(vm_, managed_save=False, snapshots=False, **kwargs):
    """
    Forget a VM's definition; its disks stay.

    vm_
        The VM's name.
    managed_save
        Also lose its saved state. Defaults to False: a VM that has one is refused.
    snapshots
        Also forget libvirt's metadata of its snapshots and backup checkpoints. Defaults to False:
        a VM that has some is refused. The kept definition of a moved VM goes with all of these.

    The firmware's variables are removed, unless another host may use them: they stay if the VM has
    moved there, or if it does not run and has them in ``virt:shared_paths``. The state of an
    emulated TPM stays for a later definition with the same UUID; because libvirt before 8.9 removes
    this state, a VM that has one is refused until the state is moved away.

    Returns True; fails if there is no such VM, or if it is being moved to or from this host, or is
    being built or purged. Undo: virt.define_xml_str with its virt.get_xml.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.undefine centos1
    """
    with _module.opened("virt.undefine", kwargs) as (conn, settings):
        purge.undefine(
            conn,
            settings,
            vm_,
            managed_save=arguments.boolean("managed_save", managed_save),
            snapshots=arguments.boolean("snapshots", snapshots),
        )
    return True


def define_xml_str(xml, **kwargs):
    """
    Define a VM from libvirt's domain XML.

    xml
        The XML text.

    Returns True; fails with libvirt's message, or if the VM is being moved to or from this host, or
    only its definition was kept here. Undo: virt.undefine.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.define_xml_str "<domain type='qemu'><name>d9</name><memory>65536</memory>\
<os><type>hvm</type></os></domain>"
        salt hyper1 virt.undefine d9
    """
    arguments.text("xml", xml)
    opened = _module.opened("virt.define_xml_str", kwargs)
    with opened as (conn, settings), startlock.allow_defining(conn, settings, xml):
        existing.adopt(conn, lifecycle.define(conn, xml))
    return True


def define_xml_path(path, **kwargs):
    """
    Define a VM from a file with libvirt's domain XML.

    path
        Absolute path on this host.

    Returns True; fails if the file cannot be read or libvirt refuses. Undo: virt.undefine.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.define_xml_path /srv/d9.xml
    """
    return define_xml_str(hostmodule.read_file("path", path), **kwargs)


def create_xml_str(xml, **kwargs):
    """
    Start a transient VM from libvirt's domain XML; its definition is gone when it stops.

    xml
        The XML text.

    Returns True; fails with libvirt's message. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.create_xml_str "<domain type='qemu'><name>d8</name><memory>65536</memory>\
<os><type>hvm</type></os></domain>"
        salt hyper1 virt.stop d8
    """
    arguments.text("xml", xml)
    opened = _module.opened("virt.create_xml_str", kwargs)
    with opened as (conn, settings), startlock.allow_creation(conn, settings, xml):
        lifecycle.create_transient(conn, xml)
    return True


def create_xml_path(path, **kwargs):
    """
    Start a transient VM from a file with libvirt's domain XML.

    path
        Absolute path on this host.

    Returns True; fails if the file cannot be read or libvirt refuses. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.create_xml_path /srv/d8.xml
    """
    return create_xml_str(hostmodule.read_file("path", path), **kwargs)


optionguard.modules(globals())
