"""A connection of the stand-in, as libvirt-python has it."""

from contextlib import contextmanager
from functools import cache
from pathlib import Path

import libvirt
from saltvirt.xml.node import capabilities

from swarmkit.settings import CHECKOUT, OWN
from swarmkit.standin import migration, pools, texts
from swarmkit.standin.domain import UP, Domain, begin, statistics
from swarmkit.standin.refusals import Refusing, check, refusal
from swarmkit.standin.store import Store

# It stands in for QEMU's driver, the only one that hosts may have.
SCHEME = "qemu+swarm://"
# Of Debian 12, as libvirtd itself has said it.
_LIBVIRT, _QEMU = 9000000, 7002022
_CAPABILITIES = CHECKOUT / "tests/data/generations/debian12.xml"
_CPUS, _MEMORY_MIB, _MHZ = 32, 131072, 2400
_STATES = {
    libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE: lambda one: one["state"] in UP,
    libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE: lambda one: one["state"] not in UP,
}
_KINDS = {
    libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT: lambda one: one["persistent"],
    libvirt.VIR_CONNECT_LIST_DOMAINS_TRANSIENT: lambda one: not one["persistent"],
    libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART: lambda one: one["autostart"],
    libvirt.VIR_CONNECT_LIST_DOMAINS_NO_AUTOSTART: lambda one: not one["autostart"],
    libvirt.VIR_CONNECT_LIST_DOMAINS_RUNNING: lambda one: one["state"] == 1,
    libvirt.VIR_CONNECT_LIST_DOMAINS_PAUSED: lambda one: one["state"] == libvirt.VIR_DOMAIN_PAUSED,
    libvirt.VIR_CONNECT_LIST_DOMAINS_SHUTOFF: lambda one: one["state"] not in UP,
    # It has none of these.
    libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE: lambda _one: False,
    libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT: lambda _one: False,
    libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_CHECKPOINT: lambda _one: False,
}
# Groups of flags: a domain is listed if one of each group that is given fits it.
_GROUPS = (
    tuple(_STATES),
    (
        libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT,
        libvirt.VIR_CONNECT_LIST_DOMAINS_TRANSIENT,
    ),
    (
        libvirt.VIR_CONNECT_LIST_DOMAINS_RUNNING,
        libvirt.VIR_CONNECT_LIST_DOMAINS_PAUSED,
        libvirt.VIR_CONNECT_LIST_DOMAINS_SHUTOFF,
    ),
    (
        libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART,
        libvirt.VIR_CONNECT_LIST_DOMAINS_NO_AUTOSTART,
    ),
    (libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE,),
    (libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT,),
    (libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_CHECKPOINT,),
)
_FITS = {**_STATES, **_KINDS}


@cache
def _store(folder):
    """Return the store of a folder: what was read of it is known to all connections."""
    return Store(folder)


@cache
def _capabilities():
    return _CAPABILITIES.read_text()


@cache
def _machines():
    """Return ``{architecture: machine types}``."""
    found = capabilities.read(_capabilities())["guests"]
    return {guest["arch"]: guest["machines"] for guest in found}


def is_listed(one, flags):
    """Return whether virConnectListAllDomains lists a domain by its flags."""
    known = 0
    for group in _GROUPS:
        given = [flag for flag in group if flags & flag]
        known |= sum(given)
        if given and not any(_FITS[flag](one) for flag in given):
            return False
    if flags & ~known:
        raise refusal("INVALID_ARG", f"invalid argument: unsupported flags (0x{flags & ~known:x})")
    return True


class Connection(Refusing):
    """A connection to a host whose domains are in a folder."""

    def __init__(self, folder, readonly):
        check("open")
        self.folder, self.is_readonly = Path(folder), readonly
        self.store = _store(str(folder))

    def real(self, path):
        """Return where a file of this host is for whoever is on another: see settings.OWN."""
        own = Path(path)
        if own.is_relative_to(OWN):
            return str(self.folder.parent / own.relative_to(OWN))
        return str(path)

    def close(self):
        """End it: what it knows stays, in the file."""
        return 0

    def isAlive(self):  # noqa: N802
        """Return that it is alive."""
        return 1

    def getType(self):  # noqa: N802
        """Return the driver that it stands in for."""
        return "QEMU"

    def getURI(self):  # noqa: N802
        """Return its own URI."""
        return f"{SCHEME}{self.folder}"

    def getHostname(self):  # noqa: N802
        """Return the host's name."""
        return self.folder.parent.name

    def getLibVersion(self):  # noqa: N802
        """Return libvirt's version."""
        return _LIBVIRT

    def getVersion(self):  # noqa: N802
        """Return QEMU's version."""
        return _QEMU

    def getCapabilities(self):  # noqa: N802
        """Return what a real host's libvirtd has said."""
        check("getCapabilities")
        return _capabilities()

    def getDomainCapabilities(  # noqa: N802
        self, _emulator=None, arch=None, machine=None, kind=None, _flags=0
    ):
        """Return the kind of guests; what they can have is not known, so there is no CPU in it."""
        names = _machines().get(arch)
        if names and (machine is None or machine in names):
            return (
                f"<domainCapabilities><domain>{kind}</domain><machine>{machine or 'pc'}"
                f"</machine><arch>{arch}</arch></domainCapabilities>"
            )
        raise refusal("INVALID_ARG", f"invalid argument: the machine '{machine}' is not supported")

    def getInfo(self):  # noqa: N802
        """Return virNodeInfo: 32 threads, 128 GiB."""
        return ["x86_64", _MEMORY_MIB, _CPUS, _MHZ, 1, 1, _CPUS // 2, 2]

    def getMemoryStats(self, _cell, _flags=0):  # noqa: N802
        """Return the host's memory in KiB: what its guests have is taken."""
        used = sum(
            texts.figures(one["live"]).memory
            for one in self.store.read()["domains"].values()
            if one["live"]
        )
        total = _MEMORY_MIB * 1024
        return {"total": total, "free": max(total - used, 0), "buffers": 0, "cached": 0}

    def _domain(self, name, one):
        return Domain(self, name, one["uuid"])

    def listAllDomains(self, flags=0):  # noqa: N802
        """Return the domains that the flags name."""
        check("listAllDomains")
        found = self.store.read()["domains"]
        return [self._domain(name, one) for name, one in found.items() if is_listed(one, flags)]

    def lookupByName(self, name):  # noqa: N802
        """Return the domain of a name."""
        one = self.store.read()["domains"].get(name)
        if one is None:
            text = f"Domain not found: no domain with matching name '{name}'"
            raise refusal("NO_DOMAIN", text)
        return self._domain(name, one)

    def lookupByUUIDString(self, own):  # noqa: N802
        """Return the domain of a UUID."""
        for name, one in self.store.read()["domains"].items():
            if one["uuid"] == own:
                return self._domain(name, one)
        raise refusal("NO_DOMAIN", f"Domain not found: no domain with matching uuid '{own}'")

    def getAllDomainStats(self, stats=0, flags=0):  # noqa: N802
        """Return ``[(domain, statistics)]`` of the domains that the flags name."""
        check("getAllDomainStats")
        which = flags & 0xFF
        found = self.store.read()["domains"]
        return [
            (self._domain(name, one), statistics(one, stats))
            for name, one in found.items()
            if is_listed(one, which)
        ]

    def domainListGetStats(self, domains, stats=0, _flags=0):  # noqa: N802
        """Return ``[(domain, statistics)]`` of some domains."""
        found = self.store.read()["domains"]
        return [
            (one, statistics(found[one.name()], stats)) for one in domains if one.name() in found
        ]

    def defineXML(self, text):  # noqa: N802
        """Define a domain, or define it anew."""
        return self.defineXMLFlags(text, 0)

    def defineXMLFlags(self, text, _flags=0):  # noqa: N802
        """Define a domain, or define it anew."""
        check("defineXML")
        name, own, xml = texts.defined(text)
        with self.changing() as whole:
            known = _same(whole, name, own)
            if known is None:
                known = whole["domains"][name] = _new(own)
            known.update(xml=xml, persistent=True)
        return Domain(self, name, own)

    def createXML(self, text, _flags=0):  # noqa: N802
        """Start a domain with XML: one that is defined and does not run, or a transient one."""
        check("create")
        name, own, xml = texts.defined(text)
        with self.changing() as whole:
            known = _same(whole, name, own)
            if known is not None and known["state"] in UP:
                raise refusal(
                    "OPERATION_INVALID",
                    f"Requested operation is not valid: domain '{name}' is already active",
                )
            if known is None:
                known = whole["domains"][name] = {**_new(own), "xml": xml, "persistent": False}
            begin(whole, known, xml)
        return Domain(self, name, own)

    def changing(self):
        """Yield what there is, to be changed by one who may."""
        if self.is_readonly:
            raise refusal("OPERATION_DENIED", "operation forbidden: read only access prevents it")
        return self.store.changing()

    def listAllStoragePools(self, _flags=0):  # noqa: N802
        """Return the pools: those that moves have made."""
        found = self.store.read().get("pools", {})
        return [pools.Pool(self, name, one["uuid"]) for name, one in found.items()]

    def storagePoolLookupByName(self, name):  # noqa: N802
        """Return the pool of a name."""
        one = self.store.read().get("pools", {}).get(name)
        if one is None:
            text = f"Storage pool not found: no storage pool with matching name '{name}'"
            raise refusal("NO_STORAGE_POOL", text)
        return pools.Pool(self, name, one["uuid"])

    def storagePoolCreateXML(self, text, _flags=0):  # noqa: N802
        """Start a pool of a folder, which is forgotten when it is ended."""
        check("storagePoolCreateXML")
        name, made = pools.made(text)
        if not Path(self.real(made["folder"])).is_dir():
            raise refusal("SYSTEM_ERROR", f"cannot open directory '{made['folder']}'")
        with self.changing() as whole:
            if name in whole.setdefault("pools", {}):
                text = f"operation failed: pool '{name}' already exists with uuid"
                raise refusal("OPERATION_FAILED", text)
            whole["pools"][name] = made
        return pools.Pool(self, name, made["uuid"])

    def storageVolLookupByPath(self, path):  # noqa: N802
        """Return the volume that a file is."""
        found = pools.volume(self, path)
        if found is None:
            text = f"Storage volume not found: no storage vol with matching path '{path}'"
            raise refusal("NO_STORAGE_VOL", text)
        return found

    def newStream(self, _flags=0):  # noqa: N802
        """Return a stream."""
        return pools.Stream()

    def compareCPU(self, _xml, _flags=0):  # noqa: N802
        """Return that a CPU is what this host has: all hosts of the swarm have the same."""
        return libvirt.VIR_CPU_COMPARE_IDENTICAL

    def compareHypervisorCPU(  # noqa: N802
        self, _emulator, _arch, _machine, _kind, _xml, _flags=0
    ):
        """Return that this host's QEMU has a CPU."""
        return libvirt.VIR_CPU_COMPARE_SUPERSET

    def setKeepAlive(self, _interval, _count):  # noqa: N802
        """Take note of it: no network is in between."""
        return 0

    def listAllNetworks(self, _flags=0):  # noqa: N802
        """Return libvirt's networks: there are none."""
        return []

    def listAllNWFilters(self, _flags=0):  # noqa: N802
        """Return libvirt's network filters: there are none."""
        return []

    def listAllDevices(self, _flags=0):  # noqa: N802
        """Return the host's devices: none are known."""
        return []


def _new(own):
    return {
        "uuid": own,
        "xml": None,
        "live": None,
        "id": -1,
        "state": libvirt.VIR_DOMAIN_SHUTOFF,
        "reason": libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN,
        "persistent": True,
        "autostart": False,
        "began": 0,
    }


def _same(whole, name, own):
    """Return the domain of a name and UUID, None without one; refuse one that has only either."""
    for other, one in whole["domains"].items():
        if (other == name) != (one["uuid"] == own):
            raise refusal(
                "OPERATION_FAILED",
                f"operation failed: domain '{other}' is already defined with uuid {one['uuid']}",
            )
    return whole["domains"].get(name)


def filled(folder, rows):
    """Give a host its first domains: ``rows`` of ``(xml, is_up)``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with Store(folder).changing() as whole:
        for text, is_up in rows:
            name, own, xml = texts.defined(text)
            one = whole["domains"][name] = {**_new(own), "xml": xml}
            if is_up:
                begin(whole, one, xml)


def stand_in(connect, migrate):
    """
    Have ``saltvirt.libvirt.connect`` open ``qemu+swarm://FOLDER`` as one of the stand-in's.

    ``saltvirt.libvirt.domains.migrate`` then reaches the hosts beside that folder in place of
    libvirtds by TLS.
    """
    plain, own = connect._open, []

    def opened(settings, uri, readonly):
        if not uri.startswith(SCHEME):
            return plain(settings, uri, readonly)
        conn = Connection(uri.removeprefix(SCHEME), readonly)
        own[:] = [conn]
        return conn

    @contextmanager
    def target(uri):
        try:
            check("target")
            there = migration.other(own[0], uri)
        except libvirt.libvirtError as error:
            raise migrate.MigrationFailed(f"{uri} does not let this host in: {error}") from error
        yield there

    connect._open, migrate.target = opened, target
