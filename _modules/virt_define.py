"""
Define and start VMs from libvirt's own XML.

.. versionadded:: 1.0.0
"""

from pathlib import Path

from saltvirt import arguments, config, errors, optionguard
from saltvirt.kvm import connect
from saltvirt.later import Later

existing = Later("saltvirt.ops.build.existing")
lifecycle = Later("saltvirt.kvm.lifecycle")
purge = Later("saltvirt.ops.purge")
startlock = Later("saltvirt.ops.migration.startlock")

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def undefine(vm_, managed_save=False, snapshots=False, **kwargs):
    """
    Forget a VM's definition; its disks stay.

    vm_
        The VM's name.
    managed_save
        Lose its saved state with it. Defaults to False: a VM that has one is refused.
    snapshots
        Forget with it what libvirt knows of its snapshots, and of the checkpoints of backups.
        Defaults to False: a VM that has some is refused. A definition that was only kept, of a VM
        that has moved, goes with all of that.

    The firmware's variables go with it, unless they may be another host's: if the VM has moved
    there, or does not run and has them in ``virt:shared_paths``, they stay. So does the state of an
    emulated TPM, for the VM that is defined with the same UUID again: before 8.9 libvirt removes
    it, and a VM that has one is refused until it is moved away.

    Returns True; fails if there is no such VM, or if it is on its way to or from this host, or is
    being built or purged. Undo: virt.define_xml_str with its virt.get_xml.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.undefine centos1
    """
    settings = config.for_call("virt.undefine", kwargs, __opts__, __pillar__, __grains__)
    with connect.open_connection(settings, readonly=False) as conn:
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

    Returns True; fails with libvirt's message, or if the VM is on its way to or from this host, or
    only its definition was kept here. Undo: virt.undefine.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.define_xml_str "<domain type='qemu'><name>d9</name><memory>65536</memory>\
<os><type>hvm</type></os></domain>"
        salt hyper1 virt.undefine d9
    """
    arguments.text("xml", xml)
    settings = config.for_call("virt.define_xml_str", kwargs, __opts__, __pillar__, __grains__)
    connection = connect.open_connection(settings, readonly=False)
    with connection as conn, startlock.allow_defining(conn, settings, xml):
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
    return define_xml_str(_text(path), **kwargs)


def create_xml_str(xml, **kwargs):
    """
    Start a VM from libvirt's domain XML; it is forgotten when it stops.

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
    settings = config.for_call("virt.create_xml_str", kwargs, __opts__, __pillar__, __grains__)
    connection = connect.open_connection(settings, readonly=False)
    with connection as conn, startlock.allow_creation(conn, settings, xml):
        lifecycle.create_transient(conn, xml)
    return True


def create_xml_path(path, **kwargs):
    """
    Start a VM from a file with libvirt's domain XML; it is forgotten when it stops.

    path
        Absolute path on this host.

    Returns True; fails if the file cannot be read or libvirt refuses. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.create_xml_path /srv/d8.xml
    """
    return create_xml_str(_text(path), **kwargs)


def _text(path):
    try:
        return Path(arguments.text("path", path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.BadArgument("path", f"{path}: {exc}") from exc


optionguard.modules(globals())
