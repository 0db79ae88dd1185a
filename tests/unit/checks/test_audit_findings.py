"""An audit finds each fault planted on a host with its fix, and nothing else."""

import dataclasses
from datetime import timedelta

import pytest
from auditkit import NOW, console, display, key
from saltvirt.checks.audit.auditanswer import LocalFacts, ReleaseFacts
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions


def test_hosts_set_up_as_documented_have_no_findings(world):
    assert world.audit() == []


def with_facts(**facts):
    """Return a fault: hyper1 reports these facts."""
    return lambda world: world.say(**facts)


def other_certificate(**fields):
    """Return a fault: these fields of a certificate of hyper1 differ."""

    def plant(world):
        first, *further_certificates = world.facts["hyper1"].certificates
        world.say(certificates=[dataclasses.replace(first, **fields), *further_certificates])

    return plant


def certificate_of_another_host(world):
    """Let hyper1 report a certificate of hyper2."""
    world.say(certificates=world.facts["hyper2"].certificates[:1])


def revoke(world, host, now=NOW):
    """Revoke the first certificate of a host."""
    serial = world.facts[host].certificates[0].serial
    world.place.revoke([row for row in world.place.issued() if row["serial"] == serial], now)


def with_revoked_certificate(world):
    """Revoke a certificate of hyper1, and send all hosts the list."""
    revoke(world, "hyper1")
    world.heed()


def with_unread_list(world):
    """Revoke a certificate that no host has, and send the list to hyper2 only."""
    first, *further_certificates = world.facts["hyper1"].certificates
    revoke(world, "hyper1")
    old_lists = world.facts["hyper1"].revoked
    world.heed()
    world.say(certificates=further_certificates, revoked=old_lists)
    assert first.serial in world.facts["hyper2"].revoked["libvirt"].serials


def without_lists(world):
    """Let hyper1 have no lists, though a certificate is revoked."""
    with_unread_list(world)
    world.say(revoked={})


def old_lists(world):
    """Let a list of hyper1 expire."""
    lists = world.facts["hyper1"].revoked
    expired = dataclasses.replace(lists["qemu"], ends="2025-12-31T00:00:00+00:00")
    world.say(revoked={**lists, "qemu": expired})


def with_local_users(**facts):
    """Return a fault: more of hyper1's local users have access."""
    defaults = {"sockets": [], "users": [], "rules": []}
    return with_facts(local=LocalFacts(**{**defaults, **facts}))


def with_filters(world):
    """Let a VM of hyper1 use filters with a libvirt before 11.6 without other known holes."""
    release = ReleaseFacts(
        distribution="debian 13",
        libvirt="11.3.0",
        # A package that is newer than the table.
        packages={"libvirt-daemon": "11.3.0-3+deb13u9"},
    )
    world.say(release=release, filtered=["web1"])


def with_daemon(**fields):
    """Return a fault: these settings of hyper1's libvirtd differ."""

    def plant(world):
        (first_daemon,) = world.facts["hyper1"].daemons
        world.say(daemons=[dataclasses.replace(first_daemon, **fields)])

    return plant


def also_trusting(use):
    """Return a fault: hyper1 trusts another CA."""

    def plant(world):
        trusted = world.facts["hyper1"].trusted
        world.say(trusted={**trusted, use: [*trusted[use], "ab" * 32]})

    return plant


def glob_matching_last_seen_vm(world):
    """Let a glob match a VM of an unresponsive host."""
    lastseen.record_move(world.opts, "web7", "hyper2")
    world.opts["virt"] = {"hypervisors": ["hyper*", "web*"]}
    world.say(vms=[])
    world.replies["hyper2"] = minions.Reply(minion="hyper2", is_missing=True)


CHECKS = {
    "tcp": (with_facts(plain=["0.0.0.0"]), "libvirt-open"),
    "forwarded": (with_facts(unguarded=["salt_virt"]), "firewall"),
    "too little held back of what is forwarded": (with_facts(outdated=["salt_virt"]), "firewall"),
    "a NIC that sends as the host": (with_facts(user_nics=["web1"]), "user-nics"),
    "a golden image that is the base of VMs": (
        with_facts(linked_images=[["/srv/salt-images/base/a.qcow2", "/srv/salt/web.qcow2"]]),
        "linked-images",
    ),
    "a cached image with another name": (
        with_facts(linked_images=[["/srv/salt-images/base/a.qcow2", ""]]),
        "linked-images",
    ),
    "no verification": (with_daemon(verifies=False), "libvirt-open"),
    "socket": (with_local_users(sockets=["/etc/libvirt/virtqemud.conf"]), "libvirt-open"),
    "a user": (with_local_users(users=["ann"]), "libvirt-users"),
    "a rule": (with_local_users(rules=["/etc/polkit-1/rules.d/50-ann.rules"]), "libvirt-users"),
    "any name": (with_daemon(names=None), "libvirt-trust"),
    "one more name": (with_daemon(names=["OU=salt-virt hypervisor,*", "CN=*"]), "libvirt-trust"),
    "one more CA": (also_trusting("libvirt"), "libvirt-trust"),
    "one more CA of QEMU": (also_trusting("qemu"), "libvirt-trust"),
    "no TLS": (with_facts(qemu={"migrate_tls_x509_verify": "1"}), "qemu-tls"),
    "QEMU takes all": (
        with_facts(
            consoles=[],
            qemu={
                "migrate_tls_force": "1",
                "default_tls_x509_verify": "0",
                "backup_tls_x509_verify": "1",
            },
        ),
        "qemu-tls",
    ),
    "backups": (
        with_facts(qemu={"migrate_tls_force": "1", "backup_tls_x509_verify": "0"}),
        "qemu-tls",
    ),
    "console": (with_facts(consoles=[console("0.0.0.0")]), "console"),
    "console anywhere": (with_facts(consoles=[console("")]), "console"),
    "console without TLS": (
        with_facts(
            consoles=[console("::", tls="no")], qemu={"migrate_tls_force": "1", "chardev_tls": "1"}
        ),
        "console",
    ),
    "old defaults": (with_facts(compat="3006"), "compat"),
    "a wrong option": (
        with_facts(wrong_options=["option virt:tunnel: expected True"]),
        "wrong-options",
    ),
    "VNC": (with_facts(displays=[display("0.0.0.0")]), "display"),
    "VNC by name": (with_facts(displays=[display("hyper1")]), "display"),
    "SPICE": (with_facts(displays=[display("::", type="spice")]), "display"),
    "vnc_listen": (with_facts(qemu={"migrate_tls_force": "1", "vnc_listen": "0.0.0.0"}), "display"),
    "VNC with TLS for anybody": (
        with_facts(
            displays=[display("0.0.0.0")],
            qemu={"migrate_tls_force": "1", "vnc_tls": "1", "vnc_tls_x509_verify": "0"},
        ),
        "display",
    ),
    "QEMU is root": (with_facts(qemu={"migrate_tls_force": "1", "user": "+0"}), "qemu-rights"),
    "no confinement": (
        with_facts(qemu={"migrate_tls_force": "1", "security_driver": "none"}),
        "qemu-rights",
    ),
    "unknown serial": (other_certificate(serial="ab" * 16), "certificates"),
    "over": (other_certificate(not_after="2025-12-31T00:00:00+00:00"), "certificates"),
    "soon over": (
        other_certificate(
            not_before="2025-01-01T00:00:00+00:00", not_after="2026-01-20T00:00:00+00:00"
        ),
        "certificates",
    ),
    "revoked": (with_revoked_certificate, "certificates"),
    "a list that lacks one": (with_unread_list, "certificates"),
    "no list": (without_lists, "certificates"),
    "a list that ran out": (old_lists, "certificates"),
    "another's": (certificate_of_another_host, "certificates"),
    "old code": (with_facts(code="ab" * 32), "code"),
    "readable key": (with_facts(keys=[key(0o644)]), "host-keys"),
    "key of another": (with_facts(keys=[key(0o600, owner="nobody")]), "host-keys"),
    "key of another group": (
        with_facts(keys=[key(0o640, most=0o640, group="users", reader="kvm")]),
        "host-keys",
    ),
    "a disk for all": (with_facts(open_disks={"web1": ["/x/web1.s1"]}), "disk-files"),
    "an old libvirt": (
        with_facts(release=ReleaseFacts(distribution="", libvirt="12.6.0", packages={})),
        "libvirt-release",
    ),
    "an old QEMU": (
        with_facts(
            release=ReleaseFacts(
                distribution="debian 13",
                libvirt="12.8.0",
                packages={"qemu-system-x86": "1:10.0.8+ds-0+deb13u1"},
            )
        ),
        "qemu-release",
    ),
    "filters of an old libvirt": (with_filters, "filter-window"),
    "unreadable": (with_facts(unreadable={"/etc/libvirt/qemu.conf": "broken"}), "not-checked"),
}


@pytest.mark.parametrize(
    "conf",
    [
        {"vnc_password": "set"},
        {"vnc_tls": "1"},
        {"vnc_tls": "1", "vnc_tls_x509_verify": "1", "user": "libvirt-qemu"},
    ],
)
def test_a_display_with_authentication_is_not_found(world, conf):
    qemu = {"migrate_tls_force": "1", "security_driver": "apparmor", **conf}
    world.say(displays=[display("0.0.0.0")], qemu=qemu)

    assert world.audit() == []


@pytest.mark.parametrize("plant", CHECKS)
def test_each_planted_fault_is_the_only_finding(world, plant):
    do, check = CHECKS[plant]
    do(world)

    findings = world.audit()

    assert [finding[0] for finding in findings] == [check], findings
    assert all(all(part and "\n" not in part for part in finding) for finding in findings)


def test_a_list_may_lack_expired_certificates(world):
    with_unread_list(world)
    later = NOW + timedelta(days=366)
    for name, facts in world.facts.items():
        world.facts[name] = dataclasses.replace(facts, certificates=[])

    assert world.audit(later) == []


def test_a_console_with_the_daemons_tls_is_not_found(world):
    world.say(consoles=[console("0.0.0.0")], qemu={"migrate_tls_force": "1", "chardev_tls": "1"})

    assert world.audit() == []


def test_a_vm_that_a_glob_matches_is_found_on_a_silent_host_too(world):
    glob_matching_last_seen_vm(world)

    findings = {(check, where) for check, where, _text, _fix in world.audit()}

    assert findings == {("hypervisors", "web7"), ("not-checked", "hyper2")}


SILENT = {
    "silent": ({"is_missing": True}, "does not answer"),
    "unsigned": ({"is_missing": True, "error": "it poses"}, "it poses"),
    "without the function": ({"error": "'virt.audit' is not available."}, "is not available"),
    "wrong": ({"value": {"code": 1}}, "cannot read"),
    "an impossible time": (None, "an impossible time"),
}


@pytest.mark.parametrize("case", SILENT)
def test_a_host_that_could_not_be_audited_is_named(world, case):
    reply, reason = SILENT[case]
    if reply is None:
        other_certificate(not_after="soon")(world)
    else:
        world.replies["hyper1"] = minions.Reply(minion="hyper1", **reply)

    ((check, where, text, fix),) = world.audit()

    assert (check, where) == ("not-checked", "hyper1")
    assert reason in text and "salt hyper1 virt.audit" in fix
