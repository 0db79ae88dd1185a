"""Move a VM between hypervisors: find it, choose, make ready, move, tidy up."""

from saltvirt import spec
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, VirtError
from saltvirt.fleet import find, journal, leftovers
from saltvirt.fleet.deploy import DeployError, HostSilent, act, none_fits, watching
from saltvirt.model import Verdict
from saltvirt.placement import choose, moves

_LIMIT_S = 3600
# What sending seeds and definitions may take beside the move itself.
_BESIDE_S = 600


class MoveFailed(VirtError):
    """A VM was not moved; the message says where it is and why."""


class _NotReady(VirtError):
    """The target did not get ready for the VM; another one may be tried."""


def plan(opts, settings, name, target, source=None, *, say):
    """
    Return ``(source, about, verdicts)`` of a move; the best host first.

    Raises NoHostFits, with the table of reasons, if the VM can go nowhere.
    """
    target = target or None  # 3006's default is empty
    every = find.every(opts, settings)
    say("Searching", detail=f"{len(every)} hypervisors")
    found = find.survey(opts, settings, every, "virt.host_info", kwarg={"moving": name})
    source = source or _having(found, name) or find.locate(opts, settings, name)
    about = found.answers.get(source, {}).get("moving") or act(
        opts, settings, source, "virt.migration_info", name
    )
    if about["obstacles"]:
        raise MoveFailed(f"VM {name!r} stays on {source}: {'; '.join(about['obstacles'])}")
    if target is not None and target not in every:
        raise BadArgument("target", f"{target!r} is no hypervisor here; there are: "
                          f"{', '.join(every)}")  # fmt: skip
    if target == source:
        raise BadArgument("target", f"VM {name!r} is on {source} already")
    others = {host: info for host, info in found.answers.items() if host != source}
    judged = choose.judge(others, moves.need(about), settings.weights)
    verdicts = [v if target in (None, v.host) else _other(v, target) for v in judged]
    verdicts += [Verdict(host=host, reasons=(why,)) for host, why in found.reasons().items()
                 if host != source]  # fmt: skip
    return source, about, sorted(verdicts, key=lambda v: (not v.fits, -v.score, v.host))


def _having(found, name):
    """Return the one host that has a VM, None if that is not so clear."""
    having = [host for host, info in found.answers.items() if name in info["vms"]]
    return having[0] if len(having) == 1 and not found.reasons() else None


def _other(verdict, target):
    return Verdict(host=verdict.host, reasons=(f"not the host asked for ({target})",))


def chosen(opts, settings, source, about, verdicts):
    """Return the first host that fits and says itself that it could take the VM."""
    late = {}
    for verdict in verdicts:
        if not verdict.fits:
            continue
        try:
            why = act(opts, settings, verdict.host, "virt.migrate_check",
                      kwarg={"about": about, "source": source})  # fmt: skip
        except DeployError as error:
            why = [str(error).removeprefix(f"{verdict.host}: ")]
        if not why:
            return verdict.host
        late[verdict.host] = why
    raise none_fits(moves.need(about), verdicts, late)


def dry_run(opts, settings, name, target, say):
    """Return what a move would do, and every reason why it would not work; nothing is changed."""
    source, about, verdicts = plan(opts, settings, name, target, say=say)
    host = chosen(opts, settings, source, about, verdicts)
    moved = {disk["target"]: _shown(disk) for disk in about["disks"]}
    return {"name": name, "from": source, "to": host, "state": about["state"],
            "memory_mib": about["memory_mib"], "disks": moved}  # fmt: skip


def _shown(disk):
    if disk["how"] == "shared":
        return "stays where it is, the storage is shared"
    base = f", over the image {disk['base'][:12]}" if disk["base"] else ""
    return f"{disk['actual_bytes'] // 2**20} MiB of {disk['path']}{base}"


def migrate(opts, settings, name, target, given, say, source=None):
    """
    Move a VM and return ``{"name", "from", "to", "total_ms", "downtime_ms", ...}``; ``warning`` is
    there if something beside the move failed.

    given
        Keyword arguments of the module's ``virt.migrate``.
    source
        The host that has it, if that is known.
    """
    spec.move(HostSettings(), given)
    late = {}
    with journal.opened(opts, name) as entry:
        leftovers.settle(opts, settings, name, entry)
        source, about, verdicts = plan(opts, settings, name, target, source, say=say)
        for host in [verdict.host for verdict in verdicts if verdict.fits]:
            say("Placing", detail=f"from {source} to {host}")
            try:
                figures = _to(opts, settings, entry, (source, host), about, given, say)
            except _NotReady as refused:
                say("Placing", detail=f"{host} refused: {refused}")
                late[host] = [str(refused)]
                continue
            return {"name": name, "from": source, "to": host, **figures}
    raise none_fits(moves.need(about), verdicts, late)


def _to(opts, settings, entry, way, about, given, say):
    """Move a VM to a host and return the figures; raise :class:`_NotReady` if it is not taken."""
    name, (source, host) = about["name"], way
    entry.note({"name": name, "host": source, "to": host})
    entry.is_settled, is_heard, is_cut = False, True, False
    try:
        return _carried(opts, settings, name, way, about, given, say)
    except HostSilent as error:
        is_heard = False
        raise MoveFailed(f"VM {name!r} was to move from {source} to {host}, but {error}; if "
                         "libvirt had begun, it goes on by itself: run this again when both "
                         "answer") from error  # fmt: skip
    except (KeyboardInterrupt, SystemExit):
        is_cut = True
        raise
    finally:
        # What the target has made ready is given up; else the next run of this name does it.
        entry.is_settled = leftovers.forget(opts, settings, host, name) and is_heard
        if is_cut and not entry.is_settled:
            raise MoveFailed(f"interrupted, but {host} has not given up yet what it made ready for "
                             f"VM {name!r}, which may go on moving there; run this again")


def _ready(opts, settings, way, about):
    """Have the target claim room for a VM and make its files; return what it says."""
    source, host = way
    kwarg = {"about": about, "limit_s": _LIMIT_S, "source": source}
    try:
        return act(opts, settings, host, "virt.migrate_prepare", kwarg=kwarg)
    except HostSilent:
        raise
    except DeployError as error:
        raise _NotReady(str(error).removeprefix(f"{host}: ")) from error


def _carried(opts, settings, name, way, about, given, say):
    source, host = way
    made = _ready(opts, settings, way, about)
    if made["images"]:
        say("Sending", detail=f"{len(made['images'])} images to {host}")
        act(opts, settings, source, "virt.migrate_push",
            kwarg={"name": name, "target": host, "images": made["images"]})  # fmt: skip
        made = act(opts, settings, host, "virt.migrate_prepare",
                   kwarg={"about": about, "images_sent": True})  # fmt: skip
    kwarg = {**given, "vm_": name, "target": host, "present": made["present"], "report": True}
    limit_s = given.get("limit_s", _LIMIT_S) + _BESIDE_S
    watch = watching("salt/virt/migrate", source, name, say)
    figures = act(opts, settings, source, "virt.migrate", kwarg=kwarg, watch=watch,
                  limit_s=limit_s)  # fmt: skip
    if about["autostart"]:
        figures |= _autostarted(opts, settings, name, host)
    return figures


def _autostarted(opts, settings, name, host):
    """Have a VM's new host start it with itself; return a warning if it does not: it has moved."""
    try:
        act(opts, settings, host, "virt.set_autostart", name, "on")
    except DeployError as error:
        return {"warning": f"VM {name!r} is on {host}, but does not start with that host ({error}):"
                           f" salt {host} virt.set_autostart {name} on"}  # fmt: skip
    return {}
