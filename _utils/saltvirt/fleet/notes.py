"""
Where evacuations have put VMs: what every emptied host keeps of its own, put together here.

A note names the hosts one after the other. Of a VM that was evacuated from h1 to h2, and when h2
was emptied too to h3, h1 notes [h2, h3] and h2 notes [h3]: it comes home to either, and what h2
noted is over when it is home on h1. A host that was off meanwhile still notes [h2]; what h2 notes
goes on from there. All but the functions that take the cloud are decisions over plain data,
``{host: {name: [hosts]}}``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltvirt import wire
from saltvirt.errors import VirtError
from saltvirt.fleet import inventory
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act

Notes = Mapping[str, Mapping[str, Sequence[str]]]


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


def _unheard(name: str, host: str, at: str, silent: Collection[str]) -> str:
    return (
        f"it is on {at}; {_all(silent)} cannot be asked whether an evacuation put it there: "
        f"bring it back with salt-run virt.migrate {name} {host}, "
        f"or forget it with salt {host} virt.evacuated '{{{name}: null}}'"
    )


def _all(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def heard(cloud: Cloud, every: Iterable[str]) -> inventory.Survey:
    """Return the :class:`Survey` of what all hosts note: ``{name: [hosts]}`` each."""
    found = inventory.survey(cloud, every, "virt.evacuated")
    answers, failed = {}, dict(found.failed)
    for host, said in found.answers.items():
        try:
            answers[host] = listed(host, said)
        except wire.BadAnswer as error:
            failed[host] = str(error)
    return inventory.Survey(answers=answers, unreachable=found.unreachable, failed=failed)


def listed(host: str, said: Any) -> dict[str, list[str]]:
    """Return a host's notes as lists; one of an older release says the last host alone."""
    if isinstance(said, dict):
        said = {name: [at] if isinstance(at, str) else at for name, at in said.items()}
    noted: dict[str, list[str]] = wire.read(host, "virt.evacuated", dict[str, list[str]], said)
    return noted


def tell(
    cloud: Cloud,
    changes: Mapping[str, Mapping[str, Sequence[str] | None]],
) -> dict[str, str]:
    """Have hosts note ``{host: {name: hosts}}``; return why it is not noted, by host."""
    failed = {}
    for host, vms in changes.items():
        try:
            act(cloud, host, "virt.evacuated", {n: at or None for n, at in vms.items()})
        except VirtError as error:
            failed[host] = str(error)
    return failed
