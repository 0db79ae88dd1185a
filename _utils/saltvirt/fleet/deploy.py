"""Deploy a VM somewhere in the cloud: place it, give it a key, have it built, wait for it."""

from saltvirt import arguments, keypair, profiles, spec, undo
from saltvirt.errors import BadArgument, NameTaken, NoHostFits, NoSuchVm, VirtError
from saltvirt.fleet import find, journal, keys, leftovers, minions
from saltvirt.model import Verdict
from saltvirt.placement import choose

_REFUSED = "ClaimRefused"


class DeployError(VirtError):
    """A host could not build the VM; the message is the host's own, with its name."""


class HostSilent(DeployError):
    """A host does not answer; what it was asked to do may go on."""


def plan(opts, settings, need, *, host=None, where=None, say):
    """
    Return the verdict on every hypervisor, the best first, and the hosts that gave no answer.

    Raises NameTaken if any host has a VM of that name.
    """
    every = find.every(opts, settings)
    wanted = set(find.narrow(opts, every, where, host))
    say("Searching", detail=f"{len(every)} hypervisors")
    found = find.survey(opts, settings, every, "virt.host_info")
    _refuse_known(found.answers, need.name)
    judged = choose.judge(found.answers, need, settings.weights)
    verdicts = [_narrowed(verdict, wanted, host, where) for verdict in judged]
    silent = found.reasons()
    verdicts += [Verdict(host=name, reasons=(why,)) for name, why in silent.items()]
    return sorted(verdicts, key=lambda v: (not v.fits, -v.score, v.host)), set(silent)


def _narrowed(verdict, wanted, host, where):
    if verdict.host in wanted:
        return verdict
    why = f"not the host asked for ({host})" if host else f"not in where={where}"
    return Verdict(host=verdict.host, reasons=(why,))


def _refuse_known(answers, name):
    for host, info in sorted(answers.items()):
        if name in info["vms"]:
            state = info["vms"][name]["state"]
            raise NameTaken(f"VM {name!r} is on {host} already ({state}); choose another name, "
                            f"or remove it first: salt-run virt.purge {name}")  # fmt: skip
        if name in info["building"]:
            raise NameTaken(f"VM {name!r} is being built on {host} at this moment")


def table(verdicts):
    """Return ``{host: {"fits", "score", "reasons"}}``, what ``dry_run=True`` shows."""
    return {verdict.host: verdict.to_dict() for verdict in verdicts}


def dry_run(opts, settings, name, cpu, mem, given, placing, say):
    """Return the table of a deployment that is not made."""
    need = spec.need_from_master(name, cpu, mem, given)
    verdicts, _silent_hosts = plan(opts, settings, need, **placing, say=say)
    return table(verdicts)


def deploy(opts, settings, name, cpu, mem, given, placing, say, wait=True):
    """
    Deploy a VM and return ``{"name", "host", "minion", "seconds"}``.

    given
        Keyword arguments of ``virt.init``.
    placing
        ``{"host": ..., "where": ...}``.
    wait
        Wait until the VM's own minion answers.
    """
    need = spec.need_from_master(name, cpu, mem, given)
    for keyword in ("pub_key", "priv_key"):
        if given.get(keyword) is not None:
            raise BadArgument(keyword, "the runner makes the keys itself; to use your own, call "
                              f"salt HOST virt.init {name} ...")  # fmt: skip
    is_seeded = _is_seeded(given)
    with journal.opened(opts, name) as entry, undo.on_failure() as steps:
        leftovers.settle(opts, settings, name, entry)
        verdicts, silent = plan(opts, settings, need, **placing, say=say)
        entry.take_back(opts, silent)
        if is_seeded:
            keys.refuse_taken(opts, name)
        fitting = [verdict for verdict in verdicts if verdict.fits]
        if not fitting:
            raise none_fits(need, verdicts)
        pair = _accepted_pair(opts, name, fitting[0].host, entry, steps) if is_seeded else None

        def moved(other):
            if pair:
                entry.note({"name": name, "public_key": pair[0], "host": other})

        host = _build(opts, settings, need, verdicts, (cpu, mem, given), pair, say, moved)
    return _answer(opts, settings, name, host, wait and is_seeded and given.get("start", True), say)


def _is_seeded(given):
    listed = profiles.entries(given.get("disks") or [], "disks")
    has_image = given.get("image") or any(disk.get("image") for disk in listed)
    return bool(given.get("seed", True) and has_image)


def _accepted_pair(opts, name, host, entry, steps):
    public, private = keypair.generate()
    entry.note({"name": name, "public_key": public, "host": host})
    steps.then(keys.discard, opts, name, public)
    keys.accept(opts, name, public)
    return public, private


def none_fits(need, verdicts, late=None):
    """
    Return the error that says of every host why a VM cannot be there.

    late
        ``{host: reasons}`` of hosts that fitted, and refused when they were asked.
    """
    late = {host: Verdict(host=host, reasons=tuple(why)) for host, why in (late or {}).items()}
    verdicts = [late.get(verdict.host, verdict) for verdict in verdicts]
    error = NoHostFits(need, {v.host: "; ".join(v.reasons) for v in verdicts})
    error.table = {"hosts": table(verdicts)}
    return error


def _build(opts, settings, need, verdicts, call, pair, say, moved):
    """Have the best host build the VM; one that has no room any more makes way for the next."""
    refused = {}
    fitting = [verdict for verdict in verdicts if verdict.fits]
    for verdict in fitting:
        say("Placing", detail=f"on {verdict.host}, {len(fitting)} of {len(verdicts)} hosts fit")
        moved(verdict.host)
        reply = _order(opts, settings, need.name, verdict.host, call, pair, say)
        if reply.missing:
            raise DeployError(
                f"{verdict.host} stopped answering while it built {need.name!r}; when it is back, "
                f"run virt.init again, or salt-run virt.purge {need.name}"
            )
        if reply.ok:
            return verdict.host
        if not isinstance(reply.value, dict) or reply.value.get("kind") != _REFUSED:
            raise DeployError(f"{verdict.host}: {reply.error}")
        refused[verdict.host] = [reply.error]
        say("Placing", detail=f"{verdict.host} refused: {reply.error}")
    raise none_fits(need, verdicts, refused)


def _order(opts, settings, name, host, call, pair, say):
    cpu, mem, given = call
    kwarg = {**given, "report": True}
    if pair:
        kwarg |= {"pub_key": pair[0], "priv_key": keys.seal_for(opts, host, pair[1])}

    return minions.order(
        opts, host, "virt.init", [name, cpu, mem], kwarg, timeout_s=settings.timeout_s,
        limit_s=settings.deploy_timeout_s, watch=watching("salt/virt/init", host, name, say),
    )  # fmt: skip


def watching(wanted, host, name, say):
    """Return what shows the progress events of one tag that a host fires about a name."""

    def watch(tag, event):
        # Any minion may fire any tag: it is shown, and nothing is decided by it.
        data = event.get("data") or {}
        if tag == wanted and event.get("id") == host and data.get("name") == name:
            say(str(data.get("stage")), **{k: v for k, v in data.items() if k != "stage"})

    return watch


def _answer(opts, settings, name, host, wait, say):
    out = {"name": name, "host": host}
    if not wait:
        return out
    say("Waiting", detail=f"for its minion, at most {settings.wait_s} s")
    seconds = minions.wait_for_start(opts, name, wait_s=settings.wait_s)
    if seconds is None:
        raise DeployError(
            f"VM {name!r} runs on {host}, but its minion does not answer after {settings.wait_s} "
            f"s; look at its console: salt {host} virt.console_log {name}, and remove it with "
            f"salt-run virt.purge {name}"
        )
    return {**out, "minion": "answers", "seconds": seconds}


def purge(opts, settings, name, delete_key):
    """Remove a VM, its disks, its seed and its key; return ``{host: {name: "purged"}}``."""
    arguments.vm_name(name)
    with journal.opened(opts, name) as entry:
        leftovers.settle(opts, settings, name, entry)
        try:
            host = find.locate(opts, settings, name)
        except NoSuchVm as error:
            entry.take_back(opts, error.silent)
            raise
        act(opts, settings, host, "virt.purge", name)
        if delete_key:
            keys.delete(opts, name)
    return {host: {name: "purged"}}


def act(opts, settings, host, fun, *args, kwarg=None, watch=None, limit_s=None):
    """Have a host do something, with a VM mostly, or raise with the host's own words."""
    reply = minions.order(
        opts, host, fun, list(args), kwarg, timeout_s=settings.timeout_s,
        limit_s=limit_s or settings.deploy_timeout_s, watch=watch,
    )  # fmt: skip
    if reply.missing:
        raise HostSilent(f"{host} does not answer; see: salt {host} test.ping")
    if not reply.ok:
        raise DeployError(f"{host}: {reply.error}")
    return reply.value
