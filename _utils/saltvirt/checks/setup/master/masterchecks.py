"""Judge the master's facts: pure functions that yield findings."""

import re
import shlex
from collections.abc import Iterator, Sequence

from saltvirt.checks.engine import Checks, foreign_virt
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.checks.setup.master.setupcloud import HINT, IMAGES, MOVING, NEEDED, SetupCloud
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.cluster import candidates, membership
from saltvirt.core import terminal
from saltvirt.core.findings import Finding

_OLDEST = 3006
_HASH = "sha256"
_RESTART = "systemctl restart salt-master"
_PILLAR = "libvirt"
_SHOWN_KEYS = 5
OURS = "/etc/salt/master.d/virt.conf"
_SERVE = (
    f"file_roots: {{base: [/srv/salt, FOLDER]}} in {OURS}, FOLDER being this project's; then "
    f"{_RESTART}"
)

CHECKS: Checks[SetupCloud, SetupFacts] = Checks()


def is_old(release: object) -> bool:
    """Return whether a release of Salt is older than this project supports."""
    major_match = re.match(r"\d+", str(release))
    return major_match is not None and int(major_match[0]) < _OLDEST


@CHECKS.master("salt-release", level=NEEDED)
def _release(facts: MasterFacts) -> Iterator[Finding]:
    release = facts.release
    if is_old(release):
        yield Finding(
            f"Salt {release} is older than {_OLDEST}, which is the first that works",
            f"update Salt to {_OLDEST} LTS or 3008, on the master first",
        )


@CHECKS.master("restart", level=NEEDED)
def _restart(facts: MasterFacts) -> Iterator[Finding]:
    newer_files = facts.newer_files
    if newer_files:
        yield Finding(
            f"{' and '.join(newer_files)} changed after the running master started", _RESTART
        )


@CHECKS.master("other-virt", level=NEEDED)
def _foreign_virt(facts: MasterFacts) -> Iterator[Finding]:
    yield from foreign_virt(facts.foreign_virt, "salt-pip uninstall", _RESTART)


@CHECKS.master("file-server", level=NEEDED)
def _served(facts: MasterFacts) -> Iterator[Finding]:
    served_files = facts.served_files
    if served_files.error is not None:
        yield Finding(
            f"the file server cannot list its files: {served_files.error}",
            f"mend fileserver_backend in {facts.options.get('conf_file')}, then {_RESTART}",
        )


@CHECKS.master("modules-served", level=NEEDED)
def _served_modules(facts: MasterFacts) -> Iterator[Finding]:
    if _lacks_modules(facts):
        yield Finding(
            "the master has this project's runners, but its file server does not have its "
            "modules: saltutil.sync_all brings none to the minions",
            _SERVE,
        )


def _lacks_modules(facts: MasterFacts) -> bool:
    served_files = facts.served_files
    return served_files.error is None and facts.is_synced and not served_files.has_modules


@CHECKS.master("hash-type", level=NEEDED)
def _options(facts: MasterFacts) -> Iterator[Finding]:
    hash_type = facts.options.get("hash_type", _HASH)
    if hash_type != _HASH:
        yield Finding(
            f"hash_type is {hash_type}: images of the file server cannot be checked",
            f"hash_type: {_HASH} in {OURS}, then {_RESTART}",
        )


@CHECKS.master("pillar", level=MOVING)
def _pillar(facts: MasterFacts) -> Iterator[Finding]:
    on_demand_pillars = facts.options.get("on_demand_ext_pillar") or []
    if _PILLAR not in on_demand_pillars:
        pillars_text = ", ".join([*map(str, on_demand_pillars), _PILLAR])
        yield Finding(
            "on_demand_ext_pillar lacks libvirt: hosts get no certificates",
            f"on_demand_ext_pillar: [{pillars_text}] in {OURS}, then {_RESTART}",
        )
    elif not facts.has_pillar:
        yield Finding(
            "this master has not loaded the external pillar libvirt of this project: hosts "
            "get no certificates",
            f"salt-run saltutil.sync_all, then {_RESTART}",
        )


@CHECKS.master("minion-data-cache", level=MOVING)
def _minion_data_cache(facts: MasterFacts) -> Iterator[Finding]:
    if not facts.options.get("minion_data_cache", True):
        yield Finding(
            "minion_data_cache is off: the master does not know its hosts' addresses, which "
            "certificates and firewalls need",
            f"minion_data_cache: True in {OURS}, then {_RESTART}",
        )


@CHECKS.master("hypervisors", level=NEEDED)
def _members(facts: MasterFacts) -> Iterator[Finding]:
    if facts.named_hosts:
        return
    candidate_ids = sorted(
        minion_id
        for minion_id, candidate in facts.candidates_by_id.items()
        if not candidate.vm_on and terminal.is_plain_id(minion_id)
    )
    if not any(map(facts.members.has, facts.accepted)) and not _hosts_without_key(facts):
        yield _no_hosts_finding(facts, candidate_ids)
        return
    for minion_id in candidate_ids:
        yield Finding(
            f"it is not allowed to be a hypervisor, but {facts.candidates_by_id[minion_id].why}; "
            "allow it if it is yours",
            f"salt-run virt.allow {shlex.quote(minion_id)}",
            where=minion_id,
            level=HINT,
        )


def _no_hosts_finding(facts: MasterFacts, candidate_ids: Sequence[str]) -> Finding:
    # Any machine that reaches the master can have a key wait there, so show few.
    waiting_ids = [minion_id for minion_id in facts.waiting if terminal.is_plain_id(minion_id)][
        :_SHOWN_KEYS
    ]
    fix = candidates.allow_command(facts.candidates_by_id) or "salt-run virt.allow HOST"
    problem = "no minion is allowed to be a hypervisor"
    if candidate_ids:
        problem += f"; {', '.join(candidate_ids)} seem to be yours: compare their keys first"
    elif waiting_ids:
        problem += f", and keys wait to be accepted: {', '.join(waiting_ids)}"
        problem += f"; of each, {candidates.COMPARE}"
        fix = f"salt-run virt.allow; salt-key -a HOST; {fix}"
    return Finding(problem, fix)


@CHECKS.master("hypervisors", level=NEEDED)
def _named_hosts(facts: MasterFacts) -> Iterator[Finding]:
    for host in facts.named_hosts:
        if host in facts.accepted and not facts.members.has(host):
            yield Finding(
                "it is not allowed to be a hypervisor",
                f"salt-run virt.allow {shlex.quote(host)}",
                where=host,
            )


def _hosts_without_key(facts: MasterFacts) -> list[str]:
    """Return the hosts without an accepted key: the named ones, else those that are allowed."""
    members = facts.members
    # A key may wait under an id like 'hyper*', which salt-key would take for a pattern.
    plain_ids = {minion_id for minion_id in facts.waiting if terminal.is_plain_id(minion_id)}
    member_ids = (minion_id for minion_id in {*members.named, *plain_ids} if members.has(minion_id))
    return sorted({*(facts.named_hosts or member_ids)} - {*facts.accepted})


@CHECKS.master("keys", level=NEEDED)
def _keys(facts: MasterFacts) -> Iterator[Finding]:
    for minion_id in _hosts_without_key(facts):
        host = shlex.quote(minion_id)
        is_waiting = minion_id in facts.waiting
        hint = (
            candidates.suggest_ids(minion_id, facts.accepted)
            if minion_id in facts.named_hosts
            else ""
        )
        yield Finding(
            f"its key waits to be accepted; compare it first: {candidates.COMPARE}"
            if is_waiting
            else f"no minion has shown its key; {hint}if none is to come: salt-run virt.disallow "
            + host,
            f"salt-run virt.allow; salt-key -a {host}"
            if is_waiting
            else f"id: {minion_id} and master: ADDRESS in /etc/salt/minion.d/virt.conf on "
            f"{minion_id}, then there: systemctl restart salt-minion",
            where=minion_id,
        )


@CHECKS.master("keys", level=HINT)
def _odd_ids(facts: MasterFacts) -> Iterator[Finding]:
    """Yield one hint for all odd ids, as a stranger may have any number of keys wait."""
    odd_ids = candidates.list_odd_ids([*facts.waiting, *facts.candidates_by_id]).get("odd_ids", {})
    # A glob without hidden characters misleads no reader.
    misleading_ids = {
        id_ for id_ in odd_ids if terminal.escape(id_) != id_ or not membership.is_glob(id_)
    }
    hidden_ids = sorted(filter(facts.members.has, misleading_ids))
    if hidden_ids:
        yield Finding(
            f"the master has {terminal.count_text(len(hidden_ids), 'key')} of a stranger, such "
            f"as that of '{terminal.one_line(hidden_ids[0])}': {candidates.ODD_ID_MESSAGE}",
            "leave it alone; salt-run virt.allow names all of them as odd_ids",
        )


@CHECKS.master("minion-packages", level=IMAGES)
def _minion(facts: MasterFacts) -> Iterator[Finding]:
    served_files = facts.served_files
    if served_files.error is None and not served_files.has_minion:
        yield Finding(
            "the file server has no minion for guests: images without one, such as those of "
            "distributions, are refused",
            "salt-run virt_image.minion_packages",
        )


@CHECKS.master("formula", level=HINT)
def _formula(facts: MasterFacts) -> Iterator[Finding]:
    served_files = facts.served_files
    if served_files.error is None and not (served_files.has_formula or _lacks_modules(facts)):
        yield Finding(
            "the formula hypervisor/ is not on the file server: state.apply hypervisor fails",
            _SERVE,
        )


@CHECKS.master("image", level=HINT)
def _image(facts: MasterFacts) -> Iterator[Finding]:
    if facts.served_files.error is None and not facts.served_files.has_image:
        folder = facts.root or "/srv/salt"
        roots_hint = "" if facts.root else f"file_roots: {{base: [{folder}]}} in {OURS}; "
        yield Finding(
            "the file server has no image; virt.init can also use one from the web, or "
            "one on a host",
            f"{roots_hint}install -D -m 644 IMAGE.qcow2 {shlex.quote(folder)}/IMAGE.qcow2",
        )
