"""Judge the master's facts: pure functions that yield findings."""

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from salt.utils.stringutils import expr_match

from saltvirt.cells import registry
from saltvirt.checks.audit.master.granted import MODULES, RUNNERS, describe_grants
from saltvirt.checks.audit.master.masterfacts import MasterFacts
from saltvirt.cluster import masterconfig
from saltvirt.cluster.membership import is_glob
from saltvirt.core.findings import MASTER, Finding
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
    ("minion_data_cache", True, "a VM's minion cannot be told from another guest in its name"),
    ("rotate_aes_key", True, "a deleted minion goes on reading what all are told"),
)


def findings(facts: MasterFacts) -> Iterator[Finding]:
    """Yield all findings of the master."""
    for check in (
        *(
            _salt_release,
            _options,
            _virt_options,
            _autosign,
            _grants,
            _peers,
            _files,
            _ca_ends,
            _members,
        ),
        *(_old_keys, _planted_keys, _strange_files, _served_secrets, _reactors),
    ):
        yield from check(facts)


def _salt_release(facts: MasterFacts) -> Iterator[Finding]:
    if not is_since(facts.release, OWN_PILLAR_SINCE):
        yield Finding(
            check="salt-release",
            where=MASTER,
            what=f"Salt {facts.release} gives any minion the pillar of any other",
            fix=f"update Salt {OWN_PILLAR_UPDATE}",
        )
    version = facts.options.get("minimum_auth_version") or 0
    # Salt cannot compare text with a minion's number.
    is_proved = isinstance(version, int) and version >= 3
    if is_since(facts.release, _PROOF) and not is_proved:
        yield Finding(
            check="auth-version",
            where=MASTER,
            what=f"minimum_auth_version is {version!r}: minions that do not prove their id are "
            "heard",
            fix="once all minions have 3006.17, 3007.9, 3008 or later: minimum_auth_version: 3 "
            + _CONFIG,
        )
    if not facts.options.get("zmq_filtering") and facts.options.get("transport") in (
        None,
        "zeromq",
    ):
        yield Finding(
            check="zmq-filtering",
            where=MASTER,
            what="zmq_filtering is off: every minion is sent what is meant for others",
            fix=f"zmq_filtering: True {_CONFIG}",
        )


def _options(facts: MasterFacts) -> Iterator[Finding]:
    for option, expected, consequence in _OPTIONS:
        is_on = bool(facts.options.get(option, expected))
        if is_on is not expected:
            yield Finding(
                check="options",
                where=MASTER,
                what=f"{option} is {is_on}: {consequence}",
                fix=f"{option}: {expected} {_CONFIG}",
            )


def _virt_options(facts: MasterFacts) -> Iterator[Finding]:
    settings = config.master_settings(facts.options)
    missing_reasons = filter(None, [masterconfig.explain_missing(facts.options)])
    for reason in dict.fromkeys(
        [*config.find_errors(settings), *registry.find_errors(settings), *missing_reasons]
    ):
        yield Finding(
            check="wrong-options",
            where=MASTER,
            what=f"{reason}; what needs it is refused",
            fix=f"mend it {_CONFIG}",
        )


def _autosign(facts: MasterFacts) -> Iterator[Finding]:
    # Autosign would make the first minion with a matching id a hypervisor.
    globs = (pattern for pattern in facts.patterns if is_glob(pattern))
    hosts = [re.sub(r"\[[^]]*\]|[*?]", "x", pattern) for pattern in globs]
    for line in facts.autosign:
        accepted_ids = [
            minion_id
            for minion_id in (_UNKNOWN_ID, *hosts, *facts.without_key)
            if expr_match(minion_id, line)
        ]
        if accepted_ids:
            owner_text = (
                "of any minion"
                if _UNKNOWN_ID in accepted_ids
                else f"of a hypervisor ({accepted_ids[0]})"
            )
            yield Finding(
                check="options",
                where=MASTER,
                what=f"autosign_file: {line!r} has the key {owner_text} accepted unseen",
                fix=f"take that line out of {facts.options.get('autosign_file')}; accept keys by "
                "salt-key -a",
            )
    if facts.autosign_grains:
        yield Finding(
            check="options",
            where=MASTER,
            what="autosign_grains_dir: keys are accepted by grains, which any minion can say",
            fix=f"take autosign_grains_dir out {_CONFIG}",
        )


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
                    check="acl",
                    where=MASTER,
                    what=f"{option}: {user} may do more than look: "
                    f"{', '.join(permitted_functions)}",
                    fix=f"{_FEWER_FUNCTIONS} that {user} needs, with a $ at their ends, {_CONFIG}",
                )


def _peers(facts: MasterFacts) -> Iterator[Finding]:
    for option, kind in (("peer", MODULES), ("peer_run", RUNNERS)):
        grants = facts.options.get(option)
        for minions, functions in grants.items() if isinstance(grants, Mapping) else ():
            calls = describe_grants(functions, kind)
            if calls:
                yield Finding(
                    check="options",
                    where=MASTER,
                    what=f"{option}: minions {minions} may call {', '.join(calls)}",
                    fix=f"take it out of {option} {_CONFIG}",
                )


def _reactors(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.reactors:
        yield Finding(
            check="options",
            where=MASTER,
            what=f"reactor: {path} calls functions of virt at events that any minion can send",
            fix=f"take it out of reactor {_CONFIG}; see docs/events.md",
        )


def _files(facts: MasterFacts) -> Iterator[Finding]:
    for file in facts.files:
        path = shlex.quote(file.path)
        excess_mode = file.mode & (0o077 if file.is_key else 0o022)
        check = "ca-keys" if file.is_key else "ca-files"
        if excess_mode:
            access = "read" if excess_mode & 0o044 else "write"
            yield Finding(
                check=check,
                where=MASTER,
                what=f"others than {facts.user} can {access} {file.path} (mode {file.mode:04o})",
                fix=f"chmod {'go=' if file.is_key else 'go-w'} {path}"
                + ("; then salt-run virt_pki.rotate_ca" if excess_mode & 0o044 else ""),
            )
        if file.owner not in (facts.user, "root"):
            yield Finding(
                check=check,
                where=MASTER,
                what=f"{file.path} belongs to {file.owner}",
                fix=f"chown {facts.user}: {path}",
            )


def _ca_ends(facts: MasterFacts) -> Iterator[Finding]:
    for path, end in facts.ends.items():
        if end - facts.now < _SOON:
            is_over = end <= facts.now
            yield Finding(
                check="ca-ends",
                where=MASTER,
                what=f"{path} {'was' if is_over else 'is'} good until {end:%Y-%m-%d} only",
                fix="salt-run virt_pki.rotate_ca",
            )


def _old_keys(facts: MasterFacts) -> Iterator[Finding]:
    if not facts.old_keys:
        return
    paths = [folder.path for folder in facts.old_keys]
    is_trusted = any(folder.is_trusted for folder in facts.old_keys)
    more_text = f" and {len(paths) - 1} more folders" if len(paths) > 1 else ""
    consequence = "whoever reads them is let in by libvirt" if is_trusted else "nobody needs them"
    remove_command = f"rm -r {' '.join(map(shlex.quote, paths))}"
    yield Finding(
        check="old-keys",
        where=MASTER,
        what=f"private keys of hosts, as Salt 3006 made them, are in {paths[0]}{more_text}: "
        f"{consequence}",
        fix="when all hosts have made their own (virt.keys): salt-run virt_pki.rotate_ca; then "
        + remove_command
        if is_trusted
        else remove_command,
    )


def _members(facts: MasterFacts) -> Iterator[Finding]:
    for minion_id, candidate in sorted(facts.may_be.items()):
        host = shlex.quote(minion_id)
        is_guest = f", and is a VM on {', '.join(candidate.vm_on)}" if candidate.vm_on else ""
        fix = f"if it is yours, salt-run virt.allow {host}; else salt-run virt.disallow {host}"
        yield Finding(
            check="hypervisors",
            where=minion_id,
            what=f"it is not allowed to be a hypervisor, but {candidate.why}{is_guest}",
            fix=f"salt-run virt.disallow {host}" if is_guest else fix,
        )
    for minion_id in facts.without_key:
        host = shlex.quote(minion_id)
        yield Finding(
            check="hypervisors",
            where=minion_id,
            what="it is allowed to be a hypervisor, and whoever first has a key accepted is it",
            fix=f"accept its key (salt-key -a {host}), or salt-run virt.disallow {host}",
        )


def _planted_keys(facts: MasterFacts) -> Iterator[Finding]:
    for minion_id in facts.planted:
        name = shlex.quote(minion_id)
        yield Finding(
            check="planted-key",
            where=minion_id,
            what="its key is in a file that a minion may have put there itself (Salt 3008)",
            fix=f"unless you have accepted it: salt-key -d {name}, then see docs/security.md, "
            "Salt 3008 and its caches",
        )


def _strange_files(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.strange:
        yield Finding(
            check="ca-files",
            where=MASTER,
            what=f"{path} is not of this project, or is damaged: it is passed over, and a minion "
            "may have put it there (Salt 3008)",
            fix=f"look at it, then rm {shlex.quote(path)}; see docs/security.md, Salt 3008 and its "
            "caches",
        )


def _served_secrets(facts: MasterFacts) -> Iterator[Finding]:
    for path in facts.served:
        yield Finding(
            check="secrets",
            where=MASTER,
            what=f"{path} is a private key, and any minion can read it",
            fix="move it out of file_roots, and use another key from now on",
        )
    for root, paths in facts.loose.items():
        more_text = f" and {len(paths) - 1} more below {root}" if len(paths) > 1 else ""
        yield Finding(
            check="file-roots",
            where=MASTER,
            what=f"any user of this machine can write {paths[0]}{more_text}: whoever does is root "
            "where it is applied",
            fix=f"chmod -R o-w {shlex.quote(root)}",
        )
    for path in facts.pillar_served:
        yield Finding(
            check="secrets",
            where=MASTER,
            what=f"any minion can read pillar as files: {path}",
            fix=f"keep pillar_roots and file_roots apart {_CONFIG}",
        )
