"""
Where evacuations have put VMs: what every emptied host keeps of its own, put together here.

A note names the hosts one after the other. Of a VM that was evacuated from h1 to h2, and when h2
was emptied too to h3, h1 notes [h2, h3] and h2 notes [h3]: it comes home to either, and what h2
noted is over when it is home on h1. A host that was off meanwhile still notes [h2]; what h2 notes
goes on from there. All but the functions that take the cloud are decisions over plain data,
``{host: {name: [hosts]}}``. A host could note what it likes: only what this master has proved
(:mod:`saltvirt.fleet.proofs`) is followed, and only of the VM that has the same UUID.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import wire
from saltvirt.errors import VirtError
from saltvirt.fleet import inventory, proofs
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act
from saltvirt.movefacts import EvacuatedFacts

Notes = Mapping[str, Mapping[str, Sequence[str]]]
Uuids = Mapping[str, str | None]


def of_vms(noted: proofs.Notes, uuids: Uuids) -> dict[str, dict[str, list[str]]]:
    """Return the notes of the VMs of these UUIDs, as decisions are made over them."""
    return {
        host: {name: one.hosts for name, one in own.items() if one.uuid == uuids.get(name)}
        for host, own in noted.items()
    }


def trail(notes: Notes, host: str, name: str) -> list[str]:
    """Return the hosts on which evacuations have put a VM of a host, one after the other."""
    out = list(notes.get(host, {}).get(name, ()))
    while out:
        further = notes.get(out[-1], {}).get(name, ())
        onward = [one for one in further if one not in out and one != host]
        if not onward:
            break
        out += onward
    return out


def followed(notes: Notes, name: str, source: str, to: str) -> dict[str, list[str]]:
    """
    Return what hosts must note of a VM that a command of ours moves: ``{host: hosts}``, () for no
    note; only of those whose note changes.

    A host from which an evacuation took a VM that is now put back there forgets its note of it, as
    do those on which it was only a guest since.
    """
    # A VM that is on a host is not away from it, whatever that still notes.
    valid = {**notes, source: {n: at for n, at in notes.get(source, {}).items() if n != name}}
    trails = {host: trail(valid, host, name) for host, noted in valid.items() if name in noted}
    back = trails.get(to, [])
    guest = {to, *(back[: back.index(source) + 1] if source in back else ())}
    wanted = {host: [] if host in guest else _onward(at, source, to) for host, at in trails.items()}
    wanted[source] = [] if source in guest else [to]
    return {
        host: at
        for host, at in wanted.items()
        if at is not None and at != notes.get(host, {}).get(name, [])
    }


def _onward(at: list[str], source: str, to: str) -> list[str] | None:
    """Return what one host notes when a VM goes on; None if that is as it was."""
    if source not in at:
        # Somebody had moved it by hand. Where it comes to now is not where that host's put it.
        return [] if to in at else None
    if to in at:
        return at[: at.index(to) + 1]
    return [*at[: at.index(source) + 1], to]


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """What has become of the VMs that a host notes."""

    back: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of those that come home, and where they are."""
    here: list[Any] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of those that somebody has moved by hand."""
    unsure: dict[str, Any] = field(default_factory=dict)
    """``{name: why}`` of those of which that is not known now; they stay noted."""

    @property
    def over(self) -> list[str]:
        """The names that need not be noted any more."""
        return [*self.here, *self.gone, *self.elsewhere]


def away(notes: Notes, host: str, there: Mapping[str, Collection[str]], silent: set[str]) -> Away:
    """
    Return the :class:`Away` of a host.

    there
        ``{host: names}`` of the VMs that each host has that answers.
    silent
        The hosts that have not answered everything.

    All that the host notes is looked at, proved or not; :func:`same` says who comes back of it.
    """
    out = Away()
    for name in sorted(notes[host]):
        having = sorted(one for one, names in there.items() if name in names)
        put = trail(notes, host, name)
        if len(having) > 1:
            out.unsure[name] = f"it is on {' and '.join(having)} at this moment; run this again"
        elif not having and silent:
            out.unsure[name] = f"it is on no hypervisor that answers (not asked: {_all(silent)})"
        elif not having:
            out.gone.append(name)
        elif having == [host]:
            out.here.append(name)
        elif having[0] in put:
            out.back[name] = having[0]
        elif silent & set(put):
            out.unsure[name] = _unheard(name, host, having[0], silent & set(put))
        else:
            out.elsewhere[name] = having[0]
    return out


_UNPROVED = (
    "{0} says that {1} was evacuated from it, and cannot prove it: move it by hand: "
    "salt-run virt.migrate {3} {2}"
)


def same(
    away: Away, host: str, uuids: Uuids, found: Mapping[str, Uuids], silent: Mapping[str, str]
) -> Away:
    """
    Return an :class:`Away` of a host in which those alone come back that were evacuated from it.

    uuids
        Of those of which the host has proved that.
    found
        ``{host: {name: uuid}}`` of the VMs that the hosts have now.
    silent
        ``{host: why}`` of the hosts that cannot say it.
    """
    out = replace(away, back={}, elsewhere=dict(away.elsewhere), unsure=dict(away.unsure))
    for name, at in away.back.items():
        if name not in uuids:
            out.unsure[name] = _UNPROVED.format(host, name, *map(shlex.quote, (host, name)))
        elif at not in found:
            out.unsure[name] = f"whether it is the VM that was evacuated, {at} {silent.get(at)}"
        elif name not in found[at]:
            out.unsure[name] = f"it is not on {at} any more; run this again"
        elif found[at][name] == uuids[name]:
            out.back[name] = at
        else:
            # The one that was evacuated was removed, and another has been given its name.
            out.elsewhere[name] = at
    return out


def _unheard(name: str, host: str, at: str, silent: Collection[str]) -> str:
    vm, home, nothing = map(shlex.quote, (name, host, f"{{{name}: null}}"))
    return (
        f"it is on {at}; {_all(silent)} cannot be asked whether an evacuation put it there: "
        f"bring it back with salt-run virt.migrate {vm} {home}, "
        f"or forget it with salt {home} virt.evacuated {nothing}"
    )


def _all(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def heard(cloud: Cloud, every: Iterable[str]) -> inventory.Survey:
    """Return the :class:`Survey` of what all hosts note, proved or not: ``{name: note}`` each."""
    found = inventory.survey(cloud, every, "virt.evacuated")
    answers, failed = {}, dict(found.failed)
    for host, said in found.answers.items():
        try:
            answers[host] = listed(host, said)
        except wire.BadAnswer as error:
            failed[host] = str(error)
    return inventory.Survey(answers=answers, unreachable=found.unreachable, failed=failed)


def listed(host: str, said: Any) -> dict[str, EvacuatedFacts]:
    """Return a host's notes; those of older releases have the hosts, or the last one, alone."""
    if isinstance(said, dict):
        lists = {name: [at] if isinstance(at, str) else at for name, at in said.items()}
        said = {n: {"hosts": at} if isinstance(at, list) else at for n, at in lists.items()}
    shape = dict[str, EvacuatedFacts]
    noted: dict[str, EvacuatedFacts] = wire.read(host, "virt.evacuated", shape, said)
    return noted


def note(cloud: Cloud, host: str, vms: Mapping[str, Sequence[str]], uuids: Uuids) -> None:
    """Have a host note ``{name: hosts}``, with proofs; () forgets a VM."""
    if vms:
        facts = {
            name: wire.plain(proofs.note(cloud.opts, host, name, uuids.get(name), at))
            if at
            else None
            for name, at in vms.items()
        }
        act(cloud, host, "virt.evacuated", facts)


def forget(cloud: Cloud, host: str, names: Iterable[str]) -> None:
    """Have a host forget VMs; if it does not, it cannot prove what it had noted of them."""
    over = set(names)
    if over:
        note(cloud, host, dict.fromkeys(over, ()), {})
        renew(cloud, host, over)


def renew(cloud: Cloud, host: str, over: Collection[str] = ()) -> None:
    """
    Have a host's notes proved anew: what it was given before this proves nothing any more.

    over
        The VMs that it has nothing to note of.
    """
    if not proofs.has_key(cloud.opts, host):
        return
    with proofs.renewed(cloud.opts, host):
        noted = {host: listed(host, act(cloud, host, "virt.evacuated"))}
        own = proofs.proved(cloud.opts, noted)[host]
        left = {name: one for name, one in own.items() if name not in over}
        uuids = {name: one.uuid for name, one in left.items()}
        note(cloud, host, {name: one.hosts for name, one in left.items()}, uuids)


def tell(
    cloud: Cloud, changes: Mapping[str, Mapping[str, Sequence[str]]], uuids: Uuids
) -> dict[str, str]:
    """Have hosts note ``{host: {name: hosts}}``; return why it is not noted, by host."""
    failed = {}
    for host, vms in changes.items():
        try:
            note(cloud, host, vms, uuids)
        except VirtError as error:
            failed[host] = str(error)
    return failed
