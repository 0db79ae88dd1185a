"""Change the state of one domain: start, stop, define, undefine, resize."""

import os

from saltvirt import arguments
from saltvirt.errors import LibvirtRefused, NoSuchVm
from saltvirt.kvm.connect import domain, is_gone, libvirt
from saltvirt.xml import METADATA_NS, read, to_text


def is_defined(conn, name):
    """Return whether the host knows a domain of that name."""
    return name in {dom.name() for dom in conn.listAllDomains()}


def define(conn, xml):
    """Define a domain and return its name."""
    return conn.defineXML(xml).name()


def create_transient(conn, xml):
    """Start a domain that is forgotten when it stops, and return its name."""
    return conn.createXML(xml, 0).name()


def undefine(conn, name):
    """Remove a domain's definition with all that libvirt keeps for it."""
    flags = (
        libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    )
    domain(conn, name).undefineFlags(flags)


def destroy(conn, name):
    """Stop a domain at once if it runs."""
    dom = domain(conn, name)
    if dom.isActive():
        dom.destroy()


def start(conn, name):
    """Start a domain; do nothing if it runs."""
    dom = domain(conn, name)
    if not dom.isActive():
        dom.create()


def start_once(conn, name, change):
    """Start a defined domain that does not run, with XML that is changed for this run alone."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    conn.createXML(change(domain(conn, name).XMLDesc(flags)), 0)


def act(conn, name, action):
    """Call one libvirt method of a domain: ``shutdown``, ``suspend``, ``resume``, ..."""
    dom = domain(conn, name)
    if not dom.isActive():
        raise LibvirtRefused(f"VM {name!r} is not running; start it with virt.start {name}")
    if action == "reset":
        dom.reset(0)
    elif action == "reboot":
        dom.reboot(libvirt.VIR_DOMAIN_REBOOT_DEFAULT)
    elif action == "ctrl_alt_del":
        keys = [29, 56, 111]  # Linux key codes: left control, left alt, delete
        dom.sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 0, keys, len(keys), 0)
    else:
        getattr(dom, action)()


def set_autostart(conn, name, state):
    """Start the domain with the host, or not."""
    domain(conn, name).setAutostart(int(arguments.on_off("state", state)))


def _resizable(conn, name, config):
    dom = domain(conn, name)
    if dom.isActive() and not config:
        raise LibvirtRefused(f"VM {name!r} runs; stop it first, or give config=True")
    return dom


def set_memory(conn, name, memory_mib, *, config):
    """Set the memory of a stopped domain, or of the definition too with ``config``."""
    dom = _resizable(conn, name, config)
    size_kib = memory_mib * 1024
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setMemoryFlags(size_kib, flags | libvirt.VIR_DOMAIN_MEM_MAXIMUM)
    dom.setMemoryFlags(size_kib, flags)


def set_vcpus(conn, name, vcpus, *, config):
    """Set the virtual CPUs of a stopped domain, or of the definition too with ``config``."""
    dom = _resizable(conn, name, config)
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setVcpusFlags(vcpus, flags | libvirt.VIR_DOMAIN_VCPU_MAXIMUM)
    dom.setVcpusFlags(vcpus, flags)


def set_stay(conn, name, state):
    """Tag a domain to stay on its host when the load is evened out, or not."""
    dom = domain(conn, name)
    _note(dom, "stay", "yes" if state else "no", live=False)
    if dom.isActive():
        _note(dom, "stay", "yes" if state else "no", live=True)


def note_cpu(conn, name, qemu):
    """Note for as long as a domain runs, wherever it goes, which QEMU has given it its CPU."""
    _note(domain(conn, name), "cpu_qemu", qemu, live=True)


def _note(dom, key, value, *, live):
    """Set one of this project's notes, of the running domain or of its definition."""
    # What is noted of this run alone must not get into the definition.
    root = read.metadata(dom.XMLDesc(0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE))
    root.set(key, value)
    flag = libvirt.VIR_DOMAIN_AFFECT_LIVE if live else libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT, to_text(root), "saltvirt", METADATA_NS, flag
    )


def is_arriving(conn, name):
    """Return whether the domain is only the far end of a migration that is not over."""
    try:
        dom = domain(conn, name)
        state, reason = dom.state()
        is_kept = dom.isPersistent()
    except NoSuchVm:
        return False
    except libvirt.libvirtError as exc:
        if is_gone(exc):
            return False
        raise
    waits = (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP)
    return not is_kept and state == libvirt.VIR_DOMAIN_PAUSED and reason in waits


def autostarted(conn):
    """Return the names of the domains that start with the host."""
    return {dom.name() for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)}


def saved(conn):
    """Return the names of the domains that have a saved state, with which they start again."""
    flag = libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE
    return {dom.name() for dom in conn.listAllDomains(flag)}


def with_snapshots(conn):
    """Return the names of the domains that have snapshots."""
    flag = libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT
    return {dom.name() for dom in conn.listAllDomains(flag)}


def xml(conn, name):
    """Return a domain's XML; secrets such as a VNC password are left out."""
    return domain(conn, name).XMLDesc(0)


def has_arrived(conn, uuid):
    """Return whether a domain is here, and not only the far end of a migration."""
    names = [dom.name() for dom in conn.listAllDomains() if dom.UUIDString() == uuid]
    return any(not is_arriving(conn, name) for name in names)


def _disk_sources(conn):
    """Yield ``(name, disks)`` of all domains."""
    for dom in conn.listAllDomains():
        try:
            root = read.domain(dom.XMLDesc(0))
        except libvirt.libvirtError as exc:
            if not is_gone(exc):
                raise
            continue
        yield dom.name(), read.disk_sources(root)


def disks(conn):
    """Return ``{name: paths}`` of the disks of all domains, and of what libvirt says is below."""
    out = {}
    for name, sources in _disk_sources(conn):
        backing = [(disk["backing"] or {}).get("path") for disk in sources]
        out[name] = {path for path in [*(d["path"] for d in sources), *backing] if path}
    return out


def disk_format(conn, path):
    """Return the format that libvirt has defined for a file, None if no domain has it as a disk."""
    wanted = os.path.realpath(path)
    for _name, sources in _disk_sources(conn):
        for disk in sources:
            if disk["path"] and os.path.realpath(disk["path"]) == wanted:
                return disk["format"]
    return None


def disks_in_use(conn, but=None):
    """
    Return the paths of every disk, and what it is backed by, of all domains but one.

    Each is there as it was written and with its symbolic links resolved.
    """
    used = {path for name, paths in disks(conn).items() if name != but for path in paths}
    return used | {os.path.realpath(path) for path in used}
