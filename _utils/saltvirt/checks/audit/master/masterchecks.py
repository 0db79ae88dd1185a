"""Judge the master's facts: pure functions that yield findings."""

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from salt.utils.stringutils import expr_match

from saltvirt.cells import cellstatus, registry
from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.audit.master.auditcloud import FUN, AuditCloud
from saltvirt.checks.audit.master.granted import MODULES, RUNNERS, describe_grants
from saltvirt.checks.engine import Checks, unchecked
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.cluster import masterconfig
from saltvirt.cluster.membership import is_glob
from saltvirt.core.findings import Finding
from saltvirt.core.options import config
from saltvirt.core.salt.compat import OWN_PILLAR_SINCE, OWN_PILLAR_UPDATE, is_since

# By line of Salt, the first release that can refuse minions without proof of their id.
_PROOF = {3006: 17, 3007: 9}
_SOON = timedelta(days=90)
# No minion has this id: an expression that matches it accepts any key.
_UNKNOWN_ID = "salt-virt-audit.invalid"
_FEWER_FUNCTIONS = "name only the functions, of those that only look,"
_CONFIG = "in the master's configuration, then restart salt-master"
# Options, the value that each must have and has by default, and the consequence otherwise.
_OPTIONS: tuple[tuple[str, bool, str], ...] = (
    ("open_mode", False, "any key is taken for any id"),
    ("auto_accept", False, "the key of any new minion is accepted"),
    ("permissive_pki_access", False, "the master's group may read its keys"),
    ("file_recv", False, "any minion may write files on the master"),
    ("sign_pub_messages", True, "minions cannot tell the master's orders from others'"),
    (
        "minion_data_cache",
        True,
        "the master cannot tell a VM's minion from a guest that uses its name",
    ),
    ("rotate_aes_key", True, "a deleted minion can still read what the master sends to all"),
)
# By kind of a cell's fault; faults of options are among the wrong options.
_CELL_CHECKS = {
    cellstatus.CREDENTIALS: "cell-credentials",
    cellstatus.AUTHORITY: "cell-tls",
    cellstatus.CERTIFICATE: "cell-tls",
    cellstatus.ANSWER: "not-checked",
}

CHECKS: Checks[AuditCloud, HostAudit] = Checks()


@CHECKS.cloud("not-checked")
def _unchecked_hosts(cloud: AuditCloud) -> Iterator[Finding]:
    for host, failure in cloud.failures.items():
        yield unchecked(host, failure.text, FUN)


@CHECKS.cloud("cell-tls", "cell-credentials")
def _cells(cloud: AuditCloud) -> Iterator[Finding]:
    for fault in cloud.cell_faults:
        if fault.kind in _CELL_CHECKS:
            check = _CELL_CHECKS[fault.kind]
            yield Finding(fault.problem, fault.fix, check=check, where=fault.where)


@CHECKS.master("salt-release")
def _salt_release(facts: MasterFacts) -> Iterator[Finding]:
    if not is_since(facts.release, OWN_PILLAR_SINCE):
        yield Finding(
            f"Salt {facts.release} gives any minion the pillar of any other",
            f"update Salt {OWN_PILLAR_UPDATE}",
        )


@CHECKS.master("auth-version")
def _auth_version(facts: MasterFacts) -> Iterator[Finding]:
    version = facts.options.get("minimum_auth_version") or 0
    # Salt cannot compare text with a minion's number.
    is_proved = isinstance(version, int) and version >= 3
    if is_since(facts.release, _PROOF) and not is_proved:
        yield Finding(
            f"minimum_auth_version is {version!r}: the master accepts minions that do not "
            "prove their id",
            "once all minions have 3006.17, 3007.9, 3008 or later: minimum_auth_version: 3 "
            + _CONFIG,
        )


@CHECKS.master("zmq-filtering")
def _zmq_filtering(facts: MasterFacts) -> Iterator[Finding]:
    options = facts.options
    if not options.get("zmq_filtering") and options.get("transport") in (None, "zeromq"):
        yield Finding(
            "zmq_filtering is off: every minion gets what is meant for others",
            f"zmq_filtering: True {_CONFIG}",
        )


@CHECKS.master("options")
def _options(facts: MasterFacts) -> Iterator[Finding]:
    for option, expected, consequence in _OPTIONS:
        is_on = bool(facts.options.get(option, expected))
        if is_on is not expected:
            yield Finding(f"{option} is {is_on}: {consequence}", f"{option}: {expected} {_CONFIG}")


@CHECKS.master("wrong-options")
def _virt_options(facts: MasterFacts) -> Iterator[Finding]:
    settings = config.master_settings(facts.options)
    missing_reasons = filter(None, [masterconfig.explain_missing(facts.options)])
    for reason in dict.fromkeys(
        [*config.find_errors(settings), *registry.find_errors(settings), *missing_reasons]
    ):
        yield Finding(f"{reason}; what needs it is refused", f"mend it {_CONFIG}")


@CHECKS.master("options")
def _autosign(facts: MasterFacts) -> Iterator[Finding]:
    # Autosign would make the first minion with a matching id a hypervisor.
    globs = (pattern for pattern in facts.members.patterns if is_glob(pattern))
    hosts = [re.sub(r"\[[^]]*\]|[*?]", "x", pattern) for pattern in globs]
    for line in facts.autosign_lines:
        accepted_ids = [
            minion_id
            for minion_id in (_UNKNOWN_ID, *hosts, *facts.keyless_hosts)
            if expr_match(minion_id, line)
        ]
        if accepted_ids:
            owner_text = (
                "of any minion"
                if _UNKNOWN_ID in accepted_ids
                else f"of a hypervisor ({accepted_ids[0]})"
            )
            yield Finding(
                f"autosign_file: {line!r} has the key {owner_text} accepted unseen",
                f"take that line out of {facts.options.get('autosign_file')}; accept keys by "
                "salt-key -a",
            )
    if facts.autosign_grains:
        yield Finding(
            "autosign_grains_dir: keys are accepted by grains, which any minion can claim",
            f"take autosign_grains_dir out {_CONFIG}",
        )


@CHECKS.master("acl")
def _grants(facts: MasterFacts) -> Iterator[Finding]:
    acls: list[tuple[str, Any]] = [("publisher_acl", facts.options.get("publisher_acl"))]
    systems = facts.options.get("external_auth")
    if isinstance(systems, Mapping):
        acls += [(f"external_auth:{name}", users) for name, users in systems.items()]
    for option, users in acls:
        for user, grants in users.items() if isinstance(users, Mapping) else ():
            # A key such as ^filename is an option of the authentication system, not a user.
            permitted_functions = [] if str(user).startswith("^") else describe_grants(grants)
            if permitted_functions and user not in ("root", facts.user):
                yield Finding(
                    f"{option}: {user} may do more than look: {', '.join(permitted_functions)}",
                    f"{_FEWER_FUNCTIONS} that {user} needs, with a $ at their ends, {_CONFIG}",
                )


@CHECKS.master("options")
def _peers(facts: MasterFacts) -> Iterator[Finding]:
    for option, kind in (("peer", MODULES), ("peer_run", RUNNERS)):
        grants = facts.options.get(option)
        for minions, functions in grants.items() if isinstance(grants, Mapping) else ():
            calls = describe_grants(functions, kind)
            if calls:
                yield Finding(
                    f"{option}: minions {minions} may call {', '.join(calls)}",
                    f"take it out of {option} {_CONFIG}",
                )


@CHECKS.master("options")
def _reactors(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.reactors:
        yield Finding(
            f"reactor: {path} calls functions of virt at events that any minion can send",
            f"take it out of reactor {_CONFIG}; see docs/events.md",
        )


@CHECKS.master("ca-files", "ca-keys")
def _files(facts: MasterFacts) -> Iterator[Finding]:
    for file in facts.ca_files:
        path = shlex.quote(file.path)
        excess_mode = file.mode & (0o077 if file.is_key else 0o022)
        check = "ca-keys" if file.is_key else "ca-files"
        if excess_mode:
            access = "read" if excess_mode & 0o044 else "write"
            yield Finding(
                f"users other than {facts.user} can {access} {file.path} (mode {file.mode:04o})",
                f"chmod {'go=' if file.is_key else 'go-w'} {path}"
                + ("; then salt-run virt_pki.rotate_ca" if excess_mode & 0o044 else ""),
                check=check,
            )
        if file.owner not in (facts.user, "root"):
            yield Finding(
                f"{file.path} belongs to {file.owner}", f"chown {facts.user}: {path}", check=check
            )


@CHECKS.master("ca-ends")
def _ca_ends(facts: MasterFacts) -> Iterator[Finding]:
    for path, end in facts.ca_ends.items():
        if end - facts.now < _SOON:
            is_over = end <= facts.now
            yield Finding(
                f"{path} {'was' if is_over else 'is'} good until {end:%Y-%m-%d} only",
                "salt-run virt_pki.rotate_ca",
            )


@CHECKS.master("old-keys")
def _old_keys(facts: MasterFacts) -> Iterator[Finding]:
    if not facts.old_keys:
        return
    paths = [folder.path for folder in facts.old_keys]
    is_trusted = any(folder.is_trusted for folder in facts.old_keys)
    more_text = f" and {len(paths) - 1} more folders" if len(paths) > 1 else ""
    consequence = "libvirt lets in any reader of them" if is_trusted else "nothing needs them"
    remove_command = f"rm -r {' '.join(map(shlex.quote, paths))}"
    yield Finding(
        f"private keys of hosts, as Salt 3006 made them, are in {paths[0]}{more_text}: "
        f"{consequence}",
        "when all hosts have made their own (virt.keys): salt-run virt_pki.rotate_ca; then "
        + remove_command
        if is_trusted
        else remove_command,
    )


@CHECKS.master("hypervisors")
def _members(facts: MasterFacts) -> Iterator[Finding]:
    for minion_id, candidate in sorted(facts.candidates_by_id.items()):
        host = shlex.quote(minion_id)
        is_guest = f", and is a VM on {', '.join(candidate.vm_on)}" if candidate.vm_on else ""
        fix = f"if it is yours, salt-run virt.allow {host}; else salt-run virt.disallow {host}"
        yield Finding(
            f"it is not allowed to be a hypervisor, but {candidate.why}{is_guest}",
            f"salt-run virt.disallow {host}" if is_guest else fix,
            where=minion_id,
        )
    for minion_id in facts.keyless_hosts:
        host = shlex.quote(minion_id)
        yield Finding(
            "it is allowed to be a hypervisor, and the first minion with an accepted key of this "
            "id is it",
            f"accept its key (salt-key -a {host}), or salt-run virt.disallow {host}",
            where=minion_id,
        )


@CHECKS.cloud("hypervisors")
def _guests_like_hosts(cloud: AuditCloud) -> Iterator[Finding]:
    members = cloud.master.members
    for name, hosts in sorted(cloud.hosts_by_guest.items()):
        yield Finding(
            f"it is a VM on {' and '.join(hosts)}, and {members.reserved(name)}",
            "rename or remove that VM"
            if members.is_named(name)
            else f"narrow virt:hypervisors, or salt-run virt.disallow {shlex.quote(name)}",
            where=name,
        )


@CHECKS.master("planted-key")
def _planted_keys(facts: MasterFacts) -> Iterator[Finding]:
    for minion_id in facts.planted_keys:
        name = shlex.quote(minion_id)
        yield Finding(
            "its key is in a file that a minion may have put there itself (Salt 3008)",
            f"unless you have accepted it: salt-key -d {name}, then see docs/security.md, "
            "Salt 3008 and its caches",
            where=minion_id,
        )


@CHECKS.master("ca-files")
def _strange_files(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.strange_files:
        yield Finding(
            f"{path} is not of this project, or is damaged: it is passed over, and a minion "
            "may have put it there (Salt 3008)",
            f"look at it, then rm {shlex.quote(path)}; see docs/security.md, Salt 3008 and its "
            "caches",
        )


@CHECKS.master("secrets")
def _served_secrets(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.served_keys:
        yield Finding(
            f"{path} is a private key, and any minion can read it",
            "move it out of file_roots, and use another key from now on",
        )
    for path in facts.served_pillars:
        yield Finding(
            f"any minion can read pillar as files: {path}",
            f"keep pillar_roots and file_roots apart {_CONFIG}",
        )


@CHECKS.master("file-roots")
def _loose_files(facts: MasterFacts) -> Iterator[Finding]:
    for root, paths in facts.loose_paths.items():
        more_text = f" and {len(paths) - 1} more below {root}" if len(paths) > 1 else ""
        yield Finding(
            f"any user of this machine can write {paths[0]}{more_text}: that user is root "
            "where the file is applied",
            f"chmod -R o-w {shlex.quote(root)}",
        )
