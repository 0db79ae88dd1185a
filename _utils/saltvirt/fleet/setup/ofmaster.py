"""Judge what the master has: pure functions, each of which yields what is missing."""

import re
import shlex
from collections.abc import Iterator, Sequence

from saltvirt import config, terminal
from saltvirt.fleet import candidates, membership
from saltvirt.fleet.findings import MASTER
from saltvirt.fleet.setup.gaps import HINT, IMAGES, MOVING, Gap, misspelt
from saltvirt.fleet.setup.masterfacts import MasterFacts

_OLDEST = 3006
_HASH = "sha256"
_RESTART = "systemctl restart salt-master"
_PILLAR = "libvirt"
_SHOWN = 5
OURS = "/etc/salt/master.d/virt.conf"


def gaps(facts: MasterFacts) -> Iterator[Gap]:
    """Yield all that is missing on the master."""
    checks = (_release, _restart, _served, _options, _pillar, _members, _named, _keys)
    for check in (*checks, _odd, _minion, _image, _misspelt):
        yield from check(facts)


def is_old(release: object) -> bool:
    """Return whether a release of Salt is older than those that this project runs on."""
    found = re.match(r"\d+", str(release))
    return found is not None and int(found[0]) < _OLDEST


def _release(facts: MasterFacts) -> Iterator[Gap]:
    if is_old(facts.release):
        yield Gap(
            check="salt-release",
            where=MASTER,
            what=f"Salt {facts.release} is older than {_OLDEST}, which is the first that works",
            fix=f"update Salt to {_OLDEST} LTS or 3008, on the master first",
        )


def _restart(facts: MasterFacts) -> Iterator[Gap]:
    if facts.newer:
        yield Gap(
            check="restart",
            where=MASTER,
            what=f"{' and '.join(facts.newer)} changed after the running master started",
            fix=_RESTART,
        )


def _served(facts: MasterFacts) -> Iterator[Gap]:
    serve = f"file_roots: {{base: [/srv/salt, FOLDER]}} in {OURS}, FOLDER being this project's"
    if facts.served.error is not None:
        yield Gap(
            check="file-server",
            where=MASTER,
            what=f"the file server does not say what it has: {facts.served.error}",
            fix=f"mend fileserver_backend in {facts.options.get('conf_file')}, then {_RESTART}",
        )
        return
    if facts.is_synced and not facts.served.has_modules:
        yield Gap(
            check="modules-served",
            where=MASTER,
            what="the master has this project's runners, but its file server does not have its "
            "modules: saltutil.sync_all brings none to the minions",
            fix=f"{serve}; then {_RESTART}",
        )
    elif not facts.served.has_formula:
        yield Gap(
            check="formula",
            where=MASTER,
            what="the formula hypervisor/ is not on the file server: state.apply hypervisor fails",
            fix=f"{serve}; then {_RESTART}",
            level=HINT,
        )


def _options(facts: MasterFacts) -> Iterator[Gap]:
    hash_type = facts.options.get("hash_type", _HASH)
    if hash_type != _HASH:
        yield Gap(
            check="hash-type",
            where=MASTER,
            what=f"hash_type is {hash_type}: images of the file server cannot be checked",
            fix=f"hash_type: {_HASH} in {OURS}, then {_RESTART}",
        )
    if not facts.options.get("minion_data_cache", True):
        yield Gap(
            check="minion-data-cache",
            where=MASTER,
            what="minion_data_cache is off: the master does not know its hosts' addresses, which "
            "certificates and firewalls need",
            fix=f"minion_data_cache: True in {OURS}, then {_RESTART}",
            level=MOVING,
        )


def _pillar(facts: MasterFacts) -> Iterator[Gap]:
    on_demand = facts.options.get("on_demand_ext_pillar") or []
    if _PILLAR not in on_demand:
        listed = ", ".join([*map(str, on_demand), _PILLAR])
        yield Gap(
            check="pillar",
            where=MASTER,
            what="on_demand_ext_pillar lacks libvirt: hosts get no certificates",
            fix=f"on_demand_ext_pillar: [{listed}] in {OURS}, then {_RESTART}",
            level=MOVING,
        )
    elif not facts.has_pillar:
        yield Gap(
            check="pillar",
            where=MASTER,
            what="this master has not loaded the external pillar libvirt of this project: hosts "
            "get no certificates",
            fix=f"salt-run saltutil.sync_all, then {_RESTART}",
            level=MOVING,
        )


def _members(facts: MasterFacts) -> Iterator[Gap]:
    if facts.named:
        return
    maybe = sorted(
        one for one, it in facts.may_be.items() if not it.vm_on and terminal.is_plain_id(one)
    )
    if not any(map(facts.members.has, facts.accepted)) and not _without_key(facts):
        yield _nobody(facts, maybe)
        return
    for one in maybe:
        yield Gap(
            check="hypervisors",
            where=one,
            what=f"it is not allowed to be a hypervisor, but {facts.may_be[one].why}; allow it if "
            "it is yours",
            fix=f"salt-run virt.allow {shlex.quote(one)}",
            level=HINT,
        )


def _nobody(facts: MasterFacts, maybe: Sequence[str]) -> Gap:
    # Whoever reaches the master can have a key wait there.
    waiting = [one for one in facts.waiting if terminal.is_plain_id(one)][:_SHOWN]
    fix = candidates.command(facts.may_be) or "salt-run virt.allow HOST"
    what = "no minion is allowed to be a hypervisor"
    if maybe:
        what += f"; {', '.join(maybe)} seem to be yours: compare their keys first"
    elif waiting:
        what += f", and keys wait to be accepted: {', '.join(waiting)}"
        what += f"; of each, {candidates.COMPARE}"
        fix = f"salt-run virt.allow; salt-key -a HOST; {fix}"
    return Gap(check="hypervisors", where=MASTER, what=what, fix=fix)


def _named(facts: MasterFacts) -> Iterator[Gap]:
    for one in facts.named:
        if one in facts.accepted and not facts.members.has(one):
            yield Gap(
                check="hypervisors",
                where=one,
                what="it is not allowed to be a hypervisor",
                fix=f"salt-run virt.allow {shlex.quote(one)}",
            )


def _without_key(facts: MasterFacts) -> list[str]:
    """Return the hosts that are meant, by the caller or by the master, and have no accepted key."""
    members = facts.members
    # A key may wait under the id 'hyper*', which salt-key would take for all.
    shown = {one for one in facts.waiting if terminal.is_plain_id(one)}
    meant = (one for one in {*members.named, *shown} if members.has(one))
    return sorted({*(facts.named or meant)} - {*facts.accepted})


def _odd(facts: MasterFacts) -> Iterator[Gap]:
    """Yield one hint for all odd ids: a stranger may have any number of keys wait."""
    odd = candidates.odd([*facts.waiting, *facts.may_be]).get("odd_ids", {})
    # A glob that can be read misleads no reader.
    misleading = {id_ for id_ in odd if terminal.escaped(id_) != id_ or not membership.is_glob(id_)}
    hidden = sorted(filter(facts.members.has, misleading))
    if hidden:
        yield Gap(
            check="keys",
            where=MASTER,
            what=f"the master has {terminal.counted(len(hidden), 'key')} of a stranger, such as "
            f"that of '{terminal.one_line(hidden[0])}': {candidates.ODD}",
            fix="leave it alone; salt-run virt.allow names all of them as odd_ids",
            level=HINT,
        )


def _keys(facts: MasterFacts) -> Iterator[Gap]:
    for one in _without_key(facts):
        host = shlex.quote(one)
        is_waiting = one in facts.waiting
        meant = candidates.meant(one, facts.accepted) if one in facts.named else ""
        yield Gap(
            check="keys",
            where=one,
            what=f"its key waits to be accepted; compare it first: {candidates.COMPARE}"
            if is_waiting
            else f"no minion has shown its key; {meant}if none is to come: salt-run virt.disallow "
            + host,
            fix=f"salt-run virt.allow; salt-key -a {host}"
            if is_waiting
            else f"id: {one} and master: ADDRESS in /etc/salt/minion.d/virt.conf on {one}, then "
            "there: systemctl restart salt-minion",
        )


def _minion(facts: MasterFacts) -> Iterator[Gap]:
    if facts.served.error is None and not facts.served.has_minion:
        yield Gap(
            check="minion-packages",
            where=MASTER,
            what="the file server has no minion for guests: images without one, such as those of "
            "distributions, are refused",
            fix="salt-run virt_image.minion_packages",
            level=IMAGES,
        )


def _misspelt(facts: MasterFacts) -> Iterator[Gap]:
    found = config.misspelt(facts.options)
    yield from misspelt(MASTER, found, f"in {OURS}, or where it stands, then {_RESTART}")


def _image(facts: MasterFacts) -> Iterator[Gap]:
    if facts.served.error is None and not facts.served.has_image:
        folder = facts.root or "/srv/salt"
        missing = "" if facts.root else f"file_roots: {{base: [{folder}]}} in {OURS}; "
        yield Gap(
            check="image",
            where=MASTER,
            what="the file server has no image; virt.init can also use one from the web, or "
            "one on a host",
            fix=f"{missing}install -D -m 644 IMAGE.qcow2 {shlex.quote(folder)}/IMAGE.qcow2",
            level=HINT,
        )
