"""Find the hypervisors, and the one that has a VM."""

from dataclasses import dataclass, field

from salt.utils.minions import CkMinions

from saltvirt.errors import BadArgument, MasterError, NameTaken, NoSuchVm
from saltvirt.fleet import minions


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the hosts answered, which are silent, and which could not say."""

    answers: dict
    unreachable: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)

    def beside(self):
        """Return ``unreachable`` and ``failed`` for a result; only those that are not empty."""
        out = {"unreachable": self.unreachable, "failed": self.failed}
        return {key: value for key, value in out.items() if value}

    def reasons(self):
        """Return why each host that gave no answer gave none."""
        silent = dict.fromkeys(self.unreachable, "does not answer")
        return {**silent, **self.failed}


def beside(*surveys):
    """Return :meth:`Survey.beside` of several surveys: of whom any answer is missing."""
    silent = sorted({host for one in surveys for host in one.unreachable})
    failed = {host: why for one in surveys for host, why in one.failed.items()
              if host not in silent}  # fmt: skip
    return Survey(answers={}, unreachable=silent, failed=failed).beside()


def _match(opts, expression, what):
    found = CkMinions(opts).check_minions(expression, "compound", greedy=False)
    if found.get("missing"):
        raise BadArgument(what, f"{expression!r} is no Salt target")
    return sorted(found.get("minions") or ())


def hosts(opts, settings, where=None, host=None):
    """
    Return the ids of the hypervisors, by our grain or by ``virt:hypervisors``.

    where
        A compound Salt target that narrows them.
    host
        One of them by name.
    """
    return narrow(opts, every(opts, settings), where, host)


def every(opts, settings):
    """Return the ids of all hypervisors of this master; raise MasterError if it has none."""
    found = _match(opts, settings.hypervisors, "virt:hypervisors")
    if not found:
        raise MasterError(
            "this master has no hypervisors: no minion has the grain virt_hypervisor; run "
            "\"salt '*' saltutil.sync_all\" first, or set virt:hypervisors to a target"
        )
    return found


def narrow(opts, every, where=None, host=None):
    """Return those of the hypervisors that a call means; see :func:`hosts`."""
    if host is not None and host not in every:
        raise BadArgument("host", f"{host!r} is no hypervisor here; there are: {', '.join(every)}")
    if host is not None:
        return [host]
    if where is None:
        return every
    narrowed = [one for one in every if one in set(_match(opts, where, "where"))]
    if not narrowed:
        raise BadArgument("where", f"{where!r} matches none of the hypervisors {', '.join(every)}")
    return narrowed


def survey(opts, settings, targets, fun, arg=(), kwarg=None):
    """Ask all targets one question and return the :class:`Survey`."""
    replies = minions.ask(opts, targets, fun, arg, kwarg, timeout_s=settings.timeout_s)
    return Survey(
        answers={host: reply.value for host, reply in replies.items() if reply.ok},
        unreachable=[host for host, reply in replies.items() if reply.missing],
        failed={h: r.error for h, r in replies.items() if not r.ok and not r.missing},
    )


def locate(opts, settings, name):
    """Return the host that has a VM; raise NoSuchVm, naming the hosts that could not be asked."""
    found = survey(opts, settings, hosts(opts, settings), "virt.presence", [name])
    having = sorted(h for h, there in found.answers.items() if there["state"] is not None)
    if len(having) > 1:
        raise NameTaken(f"VM {name!r} is on {' and '.join(having)}; say on which: "
                        f"salt {having[0]} virt....")  # fmt: skip
    if having:
        return having[0]
    begun = sorted(h for h, t in found.answers.items() if t["building"] or t["unfinished"])
    if begun:
        return begun[0]
    silent = [*found.unreachable, *found.failed]
    asked = f"on any of {len(found.answers)} hypervisors"
    if silent:
        asked += f" that answer (not asked: {', '.join(sorted(silent))})"
    raise NoSuchVm(name, asked, silent)
