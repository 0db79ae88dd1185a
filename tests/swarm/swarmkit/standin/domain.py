"""A domain of the stand-in, as libvirt-python has it."""

import time

import libvirt
from saltvirt.storage import diskpaths

from swarmkit.standin import migration, pools, texts
from swarmkit.standin.refusals import Refusing, check, refusal

UP = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED)
# A guest of the stand-in uses so much of a processor.
_LOAD = 0.05
_CONFIG, _MAXIMUM = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_MEM_MAXIMUM


class Domain(Refusing):
    """A domain by its name and UUID: what is asked is read anew, so that it can vanish."""

    def __init__(self, conn, name, own):
        self._conn, self._name, self._uuid = conn, name, own

    def of(self, whole):
        """Return what is kept of it; raise libvirt's error if it is gone."""
        found = whole["domains"].get(self._name)
        if found is None or found["uuid"] != self._uuid:
            raise refusal(
                "NO_DOMAIN",
                f"Domain not found: no domain with matching uuid '{self._uuid}' ({self._name})",
            )
        return found

    @property
    def _now(self):
        return self.of(self._conn.store.read())

    def _changing(self, call):
        check(call)
        if self._conn.is_readonly:
            raise refusal("OPERATION_DENIED", "operation forbidden: read only access prevents it")
        return self._conn.store.changing()

    @staticmethod
    def _refuse_at_job(one):
        """Refuse what libvirt would do only after a move, for which a caller waits 30 s at most."""
        if one.get("job") or one.get("incoming"):
            raise refusal(
                "OPERATION_TIMEOUT",
                "Timed out during operation: cannot acquire state change lock",
            )

    def _refuse_unless_up(self, one, call):
        if one["state"] not in UP:
            raise refusal(
                "OPERATION_INVALID", "Requested operation is not valid: domain is not running"
            )
        return call

    def connect(self):
        """Return its connection."""
        return self._conn

    def name(self):
        """Return its name."""
        return self._name

    def UUIDString(self):  # noqa: N802
        """Return its UUID."""
        return self._uuid

    def ID(self):  # noqa: N802
        """Return the number of this run, -1 without one."""
        return self._now["id"]

    def state(self, _flags=0):
        """Return ``[state, reason]``."""
        now = self._now
        return [now["state"], now["reason"]]

    def isActive(self):  # noqa: N802
        """Return whether it runs, or is paused."""
        return int(self._now["state"] in UP)

    def isPersistent(self):  # noqa: N802
        """Return whether it stays defined when it stops."""
        return int(self._now["persistent"])

    def isUpdated(self):  # noqa: N802
        """Return whether its definition was changed while it ran; the stand-in does not note it."""
        return 0

    def XMLDesc(self, flags=0):  # noqa: N802
        """Return what it runs as, or its definition."""
        check("XMLDesc")
        now = self._now
        is_kept = flags & libvirt.VIR_DOMAIN_XML_INACTIVE or now["live"] is None
        return texts.shown(now["xml"] if is_kept else now["live"], flags)

    def info(self):
        """Return ``[state, maximum KiB, KiB, vCPUs, time in ns]``."""
        now = self._now
        said = texts.figures(now["live"] or now["xml"])
        is_up = now["state"] in UP
        return [
            now["state"],
            said.most_memory,
            said.memory,
            said.vcpus if is_up else said.most_vcpus,
            self.cpu_ns(now, said.vcpus),
        ]

    @staticmethod
    def cpu_ns(now, count):
        """Return the processor time that a domain has used."""
        is_up = now["state"] in UP and now["began"]
        return int((time.time() - now["began"]) * count * _LOAD * 1e9) if is_up else 0

    def create(self):
        """Start it."""
        with self._changing("create") as whole:
            one = self.of(whole)
            self._refuse_at_job(one)
            if one["state"] in UP:
                raise refusal(
                    "OPERATION_INVALID",
                    "Requested operation is not valid: domain is already running",
                )
            begin(whole, one, one["xml"])
        return 0

    def createWithFlags(self, _flags=0):  # noqa: N802
        """Start it."""
        return self.create()

    def _stop(self, call, reason):
        with self._changing(call) as whole:
            one = self.of(whole)
            self._refuse_unless_up(one, call)
            one.update(state=libvirt.VIR_DOMAIN_SHUTOFF, reason=reason, live=None, id=-1, began=0)
            # A move of it fails.
            one.update(job=None, incoming=False)
            if not one["persistent"]:
                del whole["domains"][self._name]
        return 0

    def destroy(self):
        """Stop it at once."""
        return self._stop("destroy", libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED)

    def destroyFlags(self, _flags=0):  # noqa: N802
        """Stop it at once."""
        return self.destroy()

    def shutdown(self):
        """Have the guest shut down, which the stand-in's does at once."""
        return self._stop("shutdown", libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN)

    def _to(self, call, state, reason):
        with self._changing(call) as whole:
            one = self.of(whole)
            self._refuse_unless_up(one, call)
            if call != "suspend" or one.get("incoming"):
                self._refuse_at_job(one)
            one.update(state=state, reason=reason)
        return 0

    def suspend(self):
        """Pause it."""
        return self._to("suspend", libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)

    def resume(self):
        """Let it go on."""
        reason = libvirt.VIR_DOMAIN_RUNNING_UNPAUSED
        return self._to("resume", libvirt.VIR_DOMAIN_RUNNING, reason)

    def reset(self, _flags=0):
        """Do as its reset button does: it goes on."""
        return self._to("reset", libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)

    def reboot(self, _flags=0):
        """Have the guest boot anew, which the stand-in's does at once."""
        return self._to("reboot", libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)

    def undefine(self):
        """Forget its definition; one that runs is forgotten when it stops."""
        return self.undefineFlags(0)

    def undefineFlags(self, _flags=0):  # noqa: N802
        """Forget its definition; one that runs is forgotten when it stops."""
        with self._changing("undefine") as whole:
            one = self.of(whole)
            if not one["persistent"]:
                raise refusal(
                    "OPERATION_INVALID",
                    "Requested operation is not valid: cannot undefine transient domain",
                )
            self._refuse_at_job(one)
            if one["state"] in UP:
                one.update(persistent=False, xml=one["live"], autostart=False)
            else:
                del whole["domains"][self._name]
        return 0

    def autostart(self):
        """Return whether it starts with its host."""
        return int(self._now["autostart"])

    def setAutostart(self, value):  # noqa: N802
        """Have it start with its host, or not."""
        with self._changing("setAutostart") as whole:
            one = self.of(whole)
            if not one["persistent"]:
                raise refusal(
                    "OPERATION_INVALID",
                    "Requested operation is not valid: "
                    "cannot set autostart for transient domain",
                )
            self._refuse_at_job(one)
            one["autostart"] = bool(value)
        return 0

    def _edit(self, call, flags, edited):
        with self._changing(call) as whole:
            one = self.of(whole)
            self._refuse_at_job(one)
            is_up = one["state"] in UP
            # VIR_DOMAIN_AFFECT_CURRENT is what it is now.
            is_live = bool(flags & libvirt.VIR_DOMAIN_AFFECT_LIVE) or (is_up and not flags & 3)
            if is_live:
                self._refuse_unless_up(one, call)
                one["live"] = edited(one["live"])
            if flags & _CONFIG or not is_up:
                one["xml"] = edited(one["xml"])
        return 0

    def setMemoryFlags(self, kib, flags=0):  # noqa: N802
        """Set its memory, or the most it can have, in KiB."""
        which = "most_memory" if flags & _MAXIMUM else "memory"
        return self._edit("setMemory", flags, lambda text: texts.with_size(text, **{which: kib}))

    def setVcpusFlags(self, count, flags=0):  # noqa: N802
        """Set the number of its CPUs, or the most it can have."""
        which = "most_count" if flags & libvirt.VIR_DOMAIN_VCPU_MAXIMUM else "count"
        return self._edit("setVcpus", flags, lambda text: texts.with_size(text, **{which: count}))

    def setMetadata(self, kind, content, key, uri, flags=0):  # noqa: N802
        """Set one namespace's element of its metadata."""
        if kind != libvirt.VIR_DOMAIN_METADATA_ELEMENT:
            return self.__getattr__("setMetadata")()
        return self._edit(
            "setMetadata", flags, lambda text: texts.with_metadata(text, content, key, uri)
        )

    def migrateToURI3(self, uri, given=None, flags=0):  # noqa: N802
        """Move it to the host that a URI names."""
        if self._conn.is_readonly:
            raise refusal("OPERATION_DENIED", "operation forbidden: read only access prevents it")
        if not flags & libvirt.VIR_MIGRATE_PEER2PEER:
            return self.__getattr__("migrateToURI3 without VIR_MIGRATE_PEER2PEER")()
        migration.carried(self, self._conn, uri, given or {}, flags)
        return 0

    def migrateSetMaxDowntime(self, _milliseconds, _flags=0):  # noqa: N802
        """Take note of it: a move is short."""
        return 0

    def abortJob(self):  # noqa: N802
        """Have its move end before it goes on on the other host."""
        with self._changing("abortJob") as whole:
            one = self.of(whole)
            if not one.get("job"):
                raise refusal(
                    "OPERATION_INVALID",
                    "Requested operation is not valid: no job is active on the domain",
                )
            one["job"]["is_ended"] = True
        return 0

    def jobStats(self, flags=0):  # noqa: N802
        """Return what libvirt says of its job, or of its last one."""
        return migration.job_stats(self._now, flags)

    def blockInfo(self, target, _flags=0):  # noqa: N802
        """Return ``[capacity, allocation, physical]`` of one of its disks in bytes."""
        now = self._now
        disks = {d.target: d for d in texts.figures(now["live"] or now["xml"]).disks if d.path}
        if target not in disks:
            raise refusal("INVALID_ARG", f"invalid argument: invalid path {target} not assigned")
        return pools.block_info(self._conn, disks[target])

    def listAllSnapshots(self, _flags=0):  # noqa: N802
        """Return its snapshots: none."""
        self._now  # noqa: B018
        return []

    def hasManagedSaveImage(self, _flags=0):  # noqa: N802
        """Return whether it has a saved state: it has none."""
        self._now  # noqa: B018
        return 0

    def interfaceAddresses(self, _source, _flags=0):  # noqa: N802
        """Return the guest's addresses: none are known."""
        self._refuse_unless_up(self._now, "interfaceAddresses")
        return {}

    def agentSetResponseTimeout(self, _seconds, _flags=0):  # noqa: N802
        """Take note of it: there is no agent."""
        return 0


def begin(whole, one, text):
    """Note that a domain is started with XML."""
    number, whole["next_id"] = whole["next_id"], whole["next_id"] + 1
    one.update(
        live=texts.running(text, number),
        id=number,
        state=libvirt.VIR_DOMAIN_RUNNING,
        reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED,
        began=time.time(),
    )


def statistics(one, kinds):
    """Return what virConnectGetAllDomainStats says of a domain."""
    out = {}
    said = texts.figures(one["live"] or one["xml"])
    is_up = one["state"] in UP
    if kinds & libvirt.VIR_DOMAIN_STATS_STATE:
        out |= {"state.state": one["state"], "state.reason": one["reason"]}
    if kinds & libvirt.VIR_DOMAIN_STATS_CPU_TOTAL and is_up:
        out["cpu.time"] = Domain.cpu_ns(one, said.vcpus)
    if kinds & libvirt.VIR_DOMAIN_STATS_BALLOON:
        out |= {"balloon.current": said.memory, "balloon.maximum": said.most_memory}
        if is_up:
            out["balloon.rss"] = said.memory
    if kinds & libvirt.VIR_DOMAIN_STATS_VCPU:
        out |= {"vcpu.current": said.vcpus, "vcpu.maximum": said.most_vcpus}
    if kinds & libvirt.VIR_DOMAIN_STATS_BLOCK:
        out |= _blocks(said.disks, is_up)
    return out


def _blocks(disks, is_up):
    """Return the figures of disks: of those that are files here, their sizes."""
    out = {"block.count": len(disks)}
    for number, disk in enumerate(disks):
        key = f"block.{number}"
        out[f"{key}.name"] = disk.target
        if disk.path is None:
            continue
        out[f"{key}.path"] = disk.path
        sizes = diskpaths.measure(disk.path, disk.format)
        if sizes:
            out[f"{key}.capacity"] = sizes["virtual"]
            out[f"{key}.allocation"] = sizes["actual"] if is_up else 0
            out[f"{key}.physical"] = sizes["actual"]
    return out
