"""
What libvirt promises of domains, as far as saltvirt needs it; the stand-in is asked the same.

Each check gets a connection that can write, and makes a domain of its own, which is removed again.
As a program it asks a real libvirtd, and one that this moves domains to, and prints what is not so:
contract.py qemu:///system [qemu+tls://HOST/system]
"""

import json
import sys
import uuid
import xml.etree.ElementTree as ET
from contextlib import suppress

import libvirt

NAME = "saltvirt-contract"
NOTES = "urn:saltvirt-contract:1"
_XML = """<domain type='{kind}'><name>{name}</name><memory unit='MiB'>32</memory>
 <vcpu current='1'>2</vcpu><os><type arch='x86_64'>hvm</type></os>
 <devices><interface type='bridge'><source bridge='br0'/></interface>
 <graphics type='vnc' port='-1' passwd='s3cr3t-x'/></devices></domain>"""
CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
INACTIVE, SECURE = libvirt.VIR_DOMAIN_XML_INACTIVE, libvirt.VIR_DOMAIN_XML_SECURE


def xml(conn):
    """Return the XML of a domain that this driver can start; the stand-in's are QEMU's."""
    return _XML.format(kind="test" if conn.getType() == "TEST" else "qemu", name=NAME)


def refused(code, call, *words):
    """Assert that a call fails with one of libvirt's codes."""
    try:
        call(*words)
    except libvirt.libvirtError as error:
        wanted = getattr(libvirt, f"VIR_ERR_{code}")
        assert error.get_error_code() == wanted, f"{error} ({error.get_error_code()})"
        return
    raise AssertionError(f"{call.__name__} is not refused")


def names(conn, flags=0):
    """Return the names of the domains that are listed."""
    return {one.name() for one in conn.listAllDomains(flags)}


def whoever_is_not_there_is_not_found(conn):
    """A name or UUID that the host does not know is an error of its own."""
    refused("NO_DOMAIN", conn.lookupByName, NAME)
    refused("NO_DOMAIN", conn.lookupByUUIDString, str(uuid.uuid4()))


def what_is_defined_does_not_run(conn):
    """A definition is kept, completed, and not started."""
    dom = conn.defineXML(xml(conn))
    assert (dom.name(), dom.ID(), dom.isActive(), dom.isPersistent()) == (NAME, -1, 0, 1)
    assert dom.state()[0] == libvirt.VIR_DOMAIN_SHUTOFF
    assert conn.lookupByUUIDString(dom.UUIDString()).name() == NAME
    root = ET.fromstring(dom.XMLDesc(0))
    assert root.findtext("uuid") == dom.UUIDString()
    assert (root.findtext("memory"), root.find("memory").get("unit")) == ("32768", "KiB")
    assert root.findtext("currentMemory") == "32768"
    assert root.find("devices/interface/mac").get("address")
    assert root.get("id") is None


def what_makes_no_sense_is_not_defined(conn):
    """XML that is broken, or of something else, is refused."""
    refused("XML_DETAIL", conn.defineXML, "<domain")
    refused("XML_ERROR", conn.defineXML, "<pool/>")
    refused("INTERNAL_ERROR", conn.defineXML, xml(conn).replace("<memory", "<uuid>x</uuid><memory"))
    refused("NO_NAME", conn.defineXML, xml(conn).replace(f"<name>{NAME}</name>", ""))


def a_name_and_a_uuid_belong_together(conn):
    """What has another's name or UUID is refused; the same again is defined anew."""
    dom = conn.defineXML(xml(conn))
    refused("OPERATION_FAILED", conn.defineXML, xml(conn))
    own = f"<uuid>{dom.UUIDString()}</uuid>"
    again = xml(conn).replace("<memory", f"{own}<memory")
    assert conn.defineXML(again.replace(">32<", ">48<")).info()[1] == 48 << 10
    refused("OPERATION_FAILED", conn.defineXML, again.replace(NAME, f"{NAME}-2"))


def what_is_started_runs_once(conn):
    """A start gives an id; a second one is refused."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    assert dom.isActive() and dom.ID() > 0
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    assert ET.fromstring(dom.XMLDesc(0)).get("id") == str(dom.ID())
    assert ET.fromstring(dom.XMLDesc(INACTIVE)).get("id") is None
    refused("OPERATION_INVALID", dom.create)


def what_is_paused_goes_on(conn):
    """A paused domain is active."""
    dom = conn.defineXML(xml(conn))
    refused("OPERATION_INVALID", dom.suspend)
    dom.create()
    dom.suspend()
    assert (dom.state()[0], dom.isActive()) == (libvirt.VIR_DOMAIN_PAUSED, 1)
    dom.resume()
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING


def what_is_destroyed_stays_defined(conn):
    """Only a domain that runs can be destroyed."""
    dom = conn.defineXML(xml(conn))
    refused("OPERATION_INVALID", dom.destroy)
    dom.create()
    dom.destroy()
    assert (dom.isActive(), dom.ID()) == (0, -1)
    assert dom.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED]
    assert NAME in names(conn)


def what_is_undefined_while_it_runs_goes_when_it_stops(conn):
    """Until then it is transient."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    dom.undefine()
    assert (dom.isActive(), dom.isPersistent()) == (1, 0)
    refused("OPERATION_INVALID", dom.undefine)
    dom.destroy()
    refused("NO_DOMAIN", conn.lookupByName, NAME)
    refused("NO_DOMAIN", dom.state)


def what_is_undefined_is_gone(conn):
    """Whoever still has it in hand is told so."""
    dom = conn.defineXML(xml(conn))
    dom.undefine()
    assert NAME not in names(conn)
    for call in (dom.create, dom.undefine, dom.state, dom.XMLDesc):
        refused("NO_DOMAIN", call)


def what_is_transient_does_not_start_with_the_host(conn):
    """A domain without a definition has nothing to start it by."""
    dom = conn.createXML(xml(conn), 0)
    assert (dom.isActive(), dom.isPersistent()) == (1, 0)
    refused("OPERATION_INVALID", dom.setAutostart, 1)
    refused("OPERATION_INVALID", conn.createXML, dom.XMLDesc(0), 0)


def domains_are_listed_by_what_they_are(conn):
    """One of each group of flags that is given fits."""
    dom = conn.defineXML(xml(conn))
    active, inactive = (
        libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE,
        libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE,
    )
    starts = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
    assert NAME not in names(conn, active) and NAME in names(conn, inactive)
    assert NAME in names(conn, active | inactive) and NAME not in names(conn, starts)
    dom.setAutostart(1)
    assert dom.autostart() == 1
    assert NAME in names(conn, starts) and NAME not in names(conn, starts | active)
    dom.create()
    assert NAME in names(conn, starts | active)
    for flag in ("MANAGEDSAVE", "HAS_SNAPSHOT"):
        assert NAME not in names(conn, getattr(libvirt, f"VIR_CONNECT_LIST_DOMAINS_{flag}"))


def notes_are_of_the_run_or_of_the_definition(conn):
    """Metadata is set in what runs, or in what is started next, and taken out again."""
    dom, kind = conn.defineXML(xml(conn)), libvirt.VIR_DOMAIN_METADATA_ELEMENT
    path = f"metadata/{{{NOTES}}}note"
    dom.setMetadata(kind, "<note is='kept'/>", "of", NOTES, CONFIG)
    assert ET.fromstring(dom.XMLDesc(0)).find(path).get("is") == "kept"
    dom.create()
    dom.setMetadata(kind, "<note is='live'/>", "of", NOTES, LIVE)
    assert ET.fromstring(dom.XMLDesc(0)).find(path).get("is") == "live"
    assert ET.fromstring(dom.XMLDesc(INACTIVE)).find(path).get("is") == "kept"
    dom.setMetadata(kind, None, "of", NOTES, CONFIG)
    assert ET.fromstring(dom.XMLDesc(INACTIVE)).find(path) is None


def sizes_are_changed_in_the_definition(conn):
    """Memory in KiB and processors, and the most of each."""
    dom = conn.defineXML(xml(conn))
    dom.setMemoryFlags(64 << 10, CONFIG | libvirt.VIR_DOMAIN_MEM_MAXIMUM)
    dom.setMemoryFlags(48 << 10, CONFIG)
    dom.setVcpusFlags(4, CONFIG | libvirt.VIR_DOMAIN_VCPU_MAXIMUM)
    dom.setVcpusFlags(3, CONFIG)
    root = ET.fromstring(dom.XMLDesc(INACTIVE))
    assert (root.findtext("memory"), root.findtext("currentMemory")) == ("65536", "49152")
    assert (root.findtext("vcpu"), root.find("vcpu").get("current")) == ("4", "3")


def secrets_are_said_to_whoever_asks_for_them(conn):
    """A display's password is left out otherwise."""
    dom = conn.defineXML(xml(conn))
    assert "s3cr3t-x" not in dom.XMLDesc(0)
    assert "s3cr3t-x" in dom.XMLDesc(SECURE)


def statistics_are_of_all_domains_at_once(conn):
    """State, processors, memory in KiB; time that only a running one has used."""
    dom = conn.defineXML(xml(conn))
    kinds = (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_VCPU
    )
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT

    def said():
        return {one.name(): values for one, values in conn.getAllDomainStats(kinds, flags)}[NAME]

    down = said()
    assert down["state.state"] == libvirt.VIR_DOMAIN_SHUTOFF
    assert (down["vcpu.current"], down["vcpu.maximum"]) == (1, 2)
    assert (down["balloon.current"], down["balloon.maximum"]) == (32768, 32768)
    assert "balloon.rss" not in down
    dom.create()
    up = said()
    assert up["state.state"] == libvirt.VIR_DOMAIN_RUNNING
    assert up["cpu.time"] >= 0 and up["balloon.rss"] > 0
    ((same, one),) = conn.domainListGetStats([dom], kinds, flags)
    assert (same.name(), one["vcpu.maximum"]) == (NAME, 2)


def no_job_is_under_way(conn):
    """Nothing moves it."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    assert dom.jobStats().get("type", 0) == libvirt.VIR_DOMAIN_JOB_NONE


def what_there_is_not_is_said(conn):
    """Pools and volumes have errors of their own."""
    refused("NO_STORAGE_POOL", conn.storagePoolLookupByName, NAME)
    refused("NO_STORAGE_VOL", conn.storageVolLookupByPath, "/nowhere/at/all")


def moved(dom, uri, *flags):
    """Move a domain as saltvirt does, with more flags."""
    wanted = sum(getattr(libvirt, f"VIR_MIGRATE_{name}") for name in ("PEER2PEER", "TLS", *flags))
    dom.migrateToURI3(uri, {}, wanted)


def what_moves_runs_there_alone(conn, other, uri):
    """It goes on on the other host, defined; here its definition stays, off as it was moved."""
    dom = conn.defineXML(xml(conn))
    dom.setAutostart(1)
    dom.create()
    moved(dom, uri, "LIVE", "PERSIST_DEST")
    there = other.lookupByName(NAME)
    assert there.UUIDString() == dom.UUIDString()
    assert (there.isActive(), there.isPersistent(), there.autostart()) == (1, 1, 0)
    wanted = [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]
    assert there.state() == wanted
    assert (dom.isActive(), dom.isPersistent(), dom.autostart()) == (0, 1, 1)
    assert dom.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED]
    refused("OPERATION_INVALID", dom.jobStats)
    last = there.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    assert last["type"] == libvirt.VIR_DOMAIN_JOB_COMPLETED and "downtime" in last


def what_is_paused_arrives_paused(conn, other, uri):
    """Nobody lets it go on."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    dom.suspend()
    moved(dom, uri, "LIVE", "PERSIST_DEST")
    assert other.lookupByName(NAME).state()[0] == libvirt.VIR_DOMAIN_PAUSED


def what_is_not_kept_there_is_transient(conn, other, uri):
    """Without a flag for it the other host has it in memory alone."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    moved(dom, uri, "LIVE")
    there = other.lookupByName(NAME)
    assert (there.isActive(), there.isPersistent()) == (1, 0)


def the_definition_of_what_is_off_moves_alone(conn, other, uri):
    """It is defined there too, and does not run."""
    dom = conn.defineXML(xml(conn))
    refused("OPERATION_INVALID", moved, dom, uri, "LIVE", "PERSIST_DEST")
    moved(dom, uri, "OFFLINE", "PERSIST_DEST")
    there = other.lookupByName(NAME)
    assert (there.isActive(), there.isPersistent()) == (0, 1)
    assert there.UUIDString() == dom.UUIDString()


def what_comes_back_is_what_was_there(conn, other, uri):
    """A definition that has stayed is the domain's own when it returns."""
    dom = conn.defineXML(xml(conn))
    dom.create()
    moved(dom, uri, "LIVE", "PERSIST_DEST")
    there = other.lookupByName(NAME)
    there.destroy()
    dom.create()
    # Off there, and defined: it is taken in again.
    moved(dom, uri, "LIVE", "PERSIST_DEST")
    assert other.lookupByName(NAME).isActive()


def what_has_its_name_or_runs_there_keeps_it_away(conn, other, uri):
    """A domain stays as it was if the other host cannot take it."""
    other.defineXML(xml(other))
    dom = conn.defineXML(xml(conn))
    dom.create()
    refused("OPERATION_FAILED", moved, dom, uri, "LIVE", "PERSIST_DEST")
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    other.lookupByName(NAME).undefine()
    there = other.createXML(dom.XMLDesc(INACTIVE), 0)
    refused("OPERATION_INVALID", moved, dom, uri, "LIVE", "PERSIST_DEST")
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING and there.isActive()


def the_disks_of_what_is_off_are_not_copied(conn, other, uri):
    """Such a move is refused, and nothing is defined there."""
    dom = conn.defineXML(xml(conn))
    refused("OPERATION_INVALID", moved, dom, uri, "OFFLINE", "PERSIST_DEST", "NON_SHARED_DISK")
    assert NAME not in names(other)


# What libvirt's test driver has no answer to, or another than QEMU's.
NOT_OF_TEST = {
    statistics_are_of_all_domains_at_once: "it has no statistics but those of the state",
    no_job_is_under_way: "it has no jobs",
    what_is_started_runs_once: "a second start is an internal error to it",
    what_is_paused_goes_on: "what does not run is an internal error to it",
    what_is_undefined_while_it_runs_goes_when_it_stops: "it undefines a transient domain",
    what_is_transient_does_not_start_with_the_host: "it has one start with the host",
}
CHECKS = [
    one
    for one in list(globals().values())
    if callable(one)
    and getattr(one, "__module__", "") == __name__
    and one.__code__.co_varnames[:1] == ("conn",)
    and one.__name__ not in ("xml", "names")
    and one.__code__.co_argcount == 1
]
# They get another host's connection, and the URI by which the first host reaches that.
MOVES = [
    one
    for one in list(globals().values())
    if getattr(one, "__code__", None) is not None
    and one.__code__.co_varnames[: one.__code__.co_argcount] == ("conn", "other", "uri")
]


def clean(conn):
    """Remove whatever a check has left."""
    for name in (NAME, f"{NAME}-2"):
        with suppress(libvirt.libvirtError):
            dom = conn.lookupByName(name)
            with suppress(libvirt.libvirtError):
                dom.destroy()
            conn.lookupByName(name).undefine()


def main():
    """Ask a libvirtd, and one that it moves domains to; print ``{check: what is not so}``."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    conns = [libvirt.open(uri) for uri in sys.argv[1:3]]
    moves, wrong = MOVES if len(conns) > 1 else [], {}
    for check in [*CHECKS, *moves]:
        for conn in conns:
            clean(conn)
        try:
            check(*((*conns, sys.argv[2]) if check in moves else conns[:1]))
        except (AssertionError, libvirt.libvirtError, KeyError) as error:
            at = error.__traceback__
            while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename == __file__:
                at = at.tb_next
            wrong[check.__name__] = f"line {at.tb_lineno}: {error!r}"
    for conn in conns:
        clean(conn)
        conn.close()
    print(json.dumps({"asked": len(CHECKS) + len(moves), "wrong": wrong}))


if __name__ == "__main__":
    main()
