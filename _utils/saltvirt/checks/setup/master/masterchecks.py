"""Judge the master's facts: pure functions that yield gaps."""

import re
import shlex
from collections.abc import Iterator, Sequence

from saltvirt.checks.setup.master.gaps import HINT, IMAGES, MOVING, Gap, misspelt_gaps
from saltvirt.checks.setup.master.masterfacts import MasterFacts
from saltvirt.cluster import candidates, membership
from saltvirt.core import terminal
from saltvirt.core.findings import MASTER
from saltvirt.core.options import config

_OLDEST = 3006
_HASH = "sha256"
_RESTART = "systemctl restart salt-master"
_PILLAR = "libvirt"
_SHOWN_KEYS = 5
OURS = "/etc/salt/master.d/virt.conf"


def gaps(facts: MasterFacts) -> Iterator[Gap]:
    """Yield all gaps of the master."""
    checks = (_release, _restart, _served, _options, _pillar, _members, _named_hosts, _keys)
    for check in (*checks, _odd_ids, _minion, _image, _misspelt_options):
        yield from check(facts)


def is_old(release: object) -> bool:
    """Return whether a release of Salt is older than this project supports."""
    major_match = re.match(r"\d+", str(release))
    return major_match is not None and int(major_match[0]) < _OLDEST


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
    serve_hint = f"file_roots: {{base: [/srv/salt, FOLDER]}} in {OURS}, FOLDER being this project's"
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
            fix=f"{serve_hint}; then {_RESTART}",
        )
    elif not facts.served.has_formula:
        yield Gap(
            check="formula",
            where=MASTER,
            what="the formula hypervisor/ is not on the file server: state.apply hypervisor fails",
            fix=f"{serve_hint}; then {_RESTART}",
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
    on_demand_pillars = facts.options.get("on_demand_ext_pillar") or []
    if _PILLAR not in on_demand_pillars:
        pillars_text = ", ".join([*map(str, on_demand_pillars), _PILLAR])
        yield Gap(
            check="pillar",
            where=MASTER,
            what="on_demand_ext_pillar lacks libvirt: hosts get no certificates",
            fix=f"on_demand_ext_pillar: [{pillars_text}] in {OURS}, then {_RESTART}",
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
    candidate_ids = sorted(
        minion_id
        for minion_id, candidate in facts.may_be.items()
        if not candidate.vm_on and terminal.is_plain_id(minion_id)
    )
    if not any(map(facts.members.has, facts.accepted)) and not _hosts_without_key(facts):
        yield _no_hosts_gap(facts, candidate_ids)
        return
    for minion_id in candidate_ids:
        yield Gap(
            check="hypervisors",
            where=minion_id,
            what=f"it is not allowed to be a hypervisor, but {facts.may_be[minion_id].why}; allow "
            "it if "
            "it is yours",
            fix=f"salt-run virt.allow {shlex.quote(minion_id)}",
            level=HINT,
        )


def _no_hosts_gap(facts: MasterFacts, candidate_ids: Sequence[str]) -> Gap:
    # Any machine that reaches the master can have a key wait there, so show few.
    waiting_ids = [minion_id for minion_id in facts.waiting if terminal.is_plain_id(minion_id)][
        :_SHOWN_KEYS
    ]
    fix = candidates.allow_command(facts.may_be) or "salt-run virt.allow HOST"
    problem = "no minion is allowed to be a hypervisor"
    if candidate_ids:
        problem += f"; {', '.join(candidate_ids)} seem to be yours: compare their keys first"
    elif waiting_ids:
        problem += f", and keys wait to be accepted: {', '.join(waiting_ids)}"
        problem += f"; of each, {candidates.COMPARE}"
        fix = f"salt-run virt.allow; salt-key -a HOST; {fix}"
    return Gap(check="hypervisors", where=MASTER, what=problem, fix=fix)


def _named_hosts(facts: MasterFacts) -> Iterator[Gap]:
    for host in facts.named:
        if host in facts.accepted and not facts.members.has(host):
            yield Gap(
                check="hypervisors",
                where=host,
                what="it is not allowed to be a hypervisor",
                fix=f"salt-run virt.allow {shlex.quote(host)}",
            )


def _hosts_without_key(facts: MasterFacts) -> list[str]:
    """Return the hosts without an accepted key: the named ones, else those that are allowed."""
    members = facts.members
    # A key may wait under an id like 'hyper*', which salt-key would take for a pattern.
    plain_ids = {minion_id for minion_id in facts.waiting if terminal.is_plain_id(minion_id)}
    member_ids = (minion_id for minion_id in {*members.named, *plain_ids} if members.has(minion_id))
    return sorted({*(facts.named or member_ids)} - {*facts.accepted})


def _odd_ids(facts: MasterFacts) -> Iterator[Gap]:
    """Yield one hint for all odd ids, as a stranger may have any number of keys wait."""
    odd_ids = candidates.list_odd_ids([*facts.waiting, *facts.may_be]).get("odd_ids", {})
    # A glob without hidden characters misleads no reader.
    misleading_ids = {
        id_ for id_ in odd_ids if terminal.escape(id_) != id_ or not membership.is_glob(id_)
    }
    hidden_ids = sorted(filter(facts.members.has, misleading_ids))
    if hidden_ids:
        yield Gap(
            check="keys",
            where=MASTER,
            what=f"the master has {terminal.count_text(len(hidden_ids), 'key')} of a stranger, "
            "such as "
            f"that of '{terminal.one_line(hidden_ids[0])}': {candidates.ODD_ID_MESSAGE}",
            fix="leave it alone; salt-run virt.allow names all of them as odd_ids",
            level=HINT,
        )


def _keys(facts: MasterFacts) -> Iterator[Gap]:
    for minion_id in _hosts_without_key(facts):
        host = shlex.quote(minion_id)
        is_waiting = minion_id in facts.waiting
        hint = candidates.suggest_ids(minion_id, facts.accepted) if minion_id in facts.named else ""
        yield Gap(
            check="keys",
            where=minion_id,
            what=f"its key waits to be accepted; compare it first: {candidates.COMPARE}"
            if is_waiting
            else f"no minion has shown its key; {hint}if none is to come: salt-run virt.disallow "
            + host,
            fix=f"salt-run virt.allow; salt-key -a {host}"
            if is_waiting
            else f"id: {minion_id} and master: ADDRESS in /etc/salt/minion.d/virt.conf on "
            f"{minion_id}, then "
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


def _misspelt_options(facts: MasterFacts) -> Iterator[Gap]:
    options_by_misspelling = config.find_misspelt(facts.options)
    yield from misspelt_gaps(
        MASTER, options_by_misspelling, f"in {OURS}, or where it stands, then {_RESTART}"
    )


def _image(facts: MasterFacts) -> Iterator[Gap]:
    if facts.served.error is None and not facts.served.has_image:
        folder = facts.root or "/srv/salt"
        roots_hint = "" if facts.root else f"file_roots: {{base: [{folder}]}} in {OURS}; "
        yield Gap(
            check="image",
            where=MASTER,
            what="the file server has no image; virt.init can also use one from the web, or "
            "one on a host",
            fix=f"{roots_hint}install -D -m 644 IMAGE.qcow2 {shlex.quote(folder)}/IMAGE.qcow2",
            level=HINT,
        )
