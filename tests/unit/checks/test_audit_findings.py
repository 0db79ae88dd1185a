"""An audit finds what is planted on a host, each with its fix, and nothing else."""

import dataclasses
from datetime import timedelta

import pytest
from auditkit import NOW, console, display, key
from saltvirt.checks.audit.auditanswer import LocalFacts, ReleaseFacts
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions


def test_nothing_falls_short_where_all_is_as_the_docs_say(world):
    assert world.audit() == []


def host(**given):
    """Return what has hyper1 say something else."""
    return lambda world: world.say(**given)


def other_certificate(**more):
    """Return what has hyper1 show a certificate that is another in some way."""

    def plant(world):
        first, *rest = world.facts["hyper1"].certificates
        world.say(certificates=[dataclasses.replace(first, **more), *rest])

    return plant


def anothers(world):
    """Have hyper1 show a certificate of hyper2."""
    world.say(certificates=world.facts["hyper2"].certificates[:1])


def revoke(world, host, now=NOW):
    """Revoke the first certificate of a host."""
    serial = world.facts[host].certificates[0].serial
    world.place.revoke([row for row in world.place.issued() if row["serial"] == serial], now)


def revoked(world):
    """Revoke a certificate that hyper1 has, and tell all hosts."""
    revoke(world, "hyper1")
    world.heed()


def unheeded(world):
    """Revoke a certificate that no host has, and tell hyper2 only."""
    first, *rest = world.facts["hyper1"].certificates
    revoke(world, "hyper1")
    before = world.facts["hyper1"].revoked
    world.heed()
    world.say(certificates=rest, revoked=before)
    assert first.serial in world.facts["hyper2"].revoked["libvirt"].serials


def without_lists(world):
    """Have hyper1 heed no lists though a certificate is revoked."""
    unheeded(world)
    world.say(revoked={})


def old_lists(world):
    """Have the lists of hyper1 run out."""
    lists = world.facts["hyper1"].revoked
    over = dataclasses.replace(lists["qemu"], ends="2025-12-31T00:00:00+00:00")
    world.say(revoked={**lists, "qemu": over})


def users(**given):
    """Return what lets more of hyper1's own users in."""
    none = {"sockets": [], "users": [], "rules": []}
    return host(local=LocalFacts(**{**none, **given}))


def filtered(world):
    """Have VMs of hyper1 rely on filters under a libvirt before 11.6, all else of it mended."""
    release = ReleaseFacts(
        distribution="debian 13",
        libvirt="11.3.0",
        # A package that is newer than the table.
        packages={"libvirt-daemon": "11.3.0-3+deb13u9"},
    )
    world.say(release=release, filtered=["web1"])


def daemon(**given):
    """Return what configures hyper1's libvirtd otherwise."""

    def plant(world):
        (usual,) = world.facts["hyper1"].daemons
        world.say(daemons=[dataclasses.replace(usual, **given)])

    return plant


def also_trusting(use):
    """Return what has hyper1 trust one more CA."""

    def plant(world):
        trusted = world.facts["hyper1"].trusted
        world.say(trusted={**trusted, use: [*trusted[use], "ab" * 32]})

    return plant


def noted_glob(world):
    """Have a glob match a VM of a host that is silent."""
    lastseen.record_move(world.opts, "web7", "hyper2")
    world.opts["virt"] = {"hypervisors": ["hyper*", "web*"]}
    world.say(vms=[])
    world.replies["hyper2"] = minions.Reply(minion="hyper2", is_missing=True)


CHECKS = {
    "tcp": (host(plain=["0.0.0.0"]), "libvirt-open"),
    "forwarded": (host(unguarded=["salt_virt"]), "firewall"),
    "too little held back of what is forwarded": (host(outdated=["salt_virt"]), "firewall"),
    "a NIC that sends as the host": (host(user_nics=["web1"]), "user-nics"),
    "a golden image that is the base of VMs": (
        host(linked_images=[["/srv/salt-images/base/a.qcow2", "/srv/salt/web.qcow2"]]),
        "linked-images",
    ),
    "a cached image with another name": (
        host(linked_images=[["/srv/salt-images/base/a.qcow2", ""]]),
        "linked-images",
    ),
    "no verification": (daemon(verifies=False), "libvirt-open"),
    "socket": (users(sockets=["/etc/libvirt/virtqemud.conf"]), "libvirt-open"),
    "a user": (users(users=["ann"]), "libvirt-users"),
    "a rule": (users(rules=["/etc/polkit-1/rules.d/50-ann.rules"]), "libvirt-users"),
    "any name": (daemon(names=None), "libvirt-trust"),
    "one more name": (daemon(names=["OU=salt-virt hypervisor,*", "CN=*"]), "libvirt-trust"),
    "one more CA": (also_trusting("libvirt"), "libvirt-trust"),
    "one more CA of QEMU": (also_trusting("qemu"), "libvirt-trust"),
    "no TLS": (host(qemu={"migrate_tls_x509_verify": "1"}), "qemu-tls"),
    "QEMU takes all": (
        host(
            consoles=[],
            qemu={
                "migrate_tls_force": "1",
                "default_tls_x509_verify": "0",
                "backup_tls_x509_verify": "1",
            },
        ),
        "qemu-tls",
    ),
    "backups": (host(qemu={"migrate_tls_force": "1", "backup_tls_x509_verify": "0"}), "qemu-tls"),
    "console": (host(consoles=[console("0.0.0.0")]), "console"),
    "console anywhere": (host(consoles=[console("")]), "console"),
    "console without TLS": (
        host(
            consoles=[console("::", tls="no")], qemu={"migrate_tls_force": "1", "chardev_tls": "1"}
        ),
        "console",
    ),
    "old defaults": (host(compat="3006"), "compat"),
    "a wrong option": (host(wrong_options=["option virt:tunnel: expected True"]), "wrong-options"),
    "VNC": (host(displays=[display("0.0.0.0")]), "display"),
    "VNC by name": (host(displays=[display("hyper1")]), "display"),
    "SPICE": (host(displays=[display("::", type="spice")]), "display"),
    "vnc_listen": (host(qemu={"migrate_tls_force": "1", "vnc_listen": "0.0.0.0"}), "display"),
    "VNC with TLS for anybody": (
        host(
            displays=[display("0.0.0.0")],
            qemu={"migrate_tls_force": "1", "vnc_tls": "1", "vnc_tls_x509_verify": "0"},
        ),
        "display",
    ),
    "QEMU is root": (host(qemu={"migrate_tls_force": "1", "user": "+0"}), "qemu-rights"),
    "no confinement": (
        host(qemu={"migrate_tls_force": "1", "security_driver": "none"}),
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
    "revoked": (revoked, "certificates"),
    "a list that lacks one": (unheeded, "certificates"),
    "no list": (without_lists, "certificates"),
    "a list that ran out": (old_lists, "certificates"),
    "another's": (anothers, "certificates"),
    "old code": (host(code="ab" * 32), "code"),
    "readable key": (host(keys=[key(0o644)]), "host-keys"),
    "key of another": (host(keys=[key(0o600, owner="nobody")]), "host-keys"),
    "key of another group": (
        host(keys=[key(0o640, most=0o640, group="users", reader="kvm")]),
        "host-keys",
    ),
    "a disk for all": (host(open_disks={"web1": ["/x/web1.s1"]}), "disk-files"),
    "an old libvirt": (
        host(release=ReleaseFacts(distribution="", libvirt="12.6.0", packages={})),
        "libvirt-release",
    ),
    "an old QEMU": (
        host(
            release=ReleaseFacts(
                distribution="debian 13",
                libvirt="12.8.0",
                packages={"qemu-system-x86": "1:10.0.8+ds-0+deb13u1"},
            )
        ),
        "qemu-release",
    ),
    "filters of an old libvirt": (filtered, "filter-window"),
    "unreadable": (host(unreadable={"/etc/libvirt/qemu.conf": "broken"}), "not-checked"),
}


@pytest.mark.parametrize(
    "conf",
    [
        {"vnc_password": "set"},
        {"vnc_tls": "1"},
        {"vnc_tls": "1", "vnc_tls_x509_verify": "1", "user": "libvirt-qemu"},
    ],
)
def test_a_display_that_asks_who_is_there_is_not_found(world, conf):
    qemu = {"migrate_tls_force": "1", "security_driver": "apparmor", **conf}
    world.say(displays=[display("0.0.0.0")], qemu=qemu)

    assert world.audit() == []


@pytest.mark.parametrize("plant", CHECKS)
def test_what_is_planted_is_found_alone(world, plant):
    do, check = CHECKS[plant]
    do(world)

    found = world.audit()

    assert [one[0] for one in found] == [check], found
    assert all(all(part and "\n" not in part for part in one) for one in found)


def test_a_list_need_not_have_what_is_over(world):
    unheeded(world)
    later = NOW + timedelta(days=366)
    for name, facts in world.facts.items():
        world.facts[name] = dataclasses.replace(facts, certificates=[])

    assert world.audit(later) == []


def test_a_console_with_the_daemons_tls_is_not_found(world):
    world.say(consoles=[console("0.0.0.0")], qemu={"migrate_tls_force": "1", "chardev_tls": "1"})

    assert world.audit() == []


def test_a_vm_that_a_glob_matches_is_found_on_a_silent_host_too(world):
    noted_glob(world)

    found = {(check, where) for check, where, _what, _fix in world.audit()}

    assert found == {("hypervisors", "web7"), ("not-checked", "hyper2")}


SILENT = {
    "silent": ({"is_missing": True}, "does not answer"),
    "unsigned": ({"is_missing": True, "error": "it poses"}, "it poses"),
    "without the function": ({"error": "'virt.audit' is not available."}, "is not available"),
    "wrong": ({"value": {"code": 1}}, "cannot read"),
    "an impossible time": (None, "an impossible time"),
}


@pytest.mark.parametrize("how", SILENT)
def test_a_host_that_could_not_be_looked_at_is_named(world, how):
    reply, why = SILENT[how]
    if reply is None:
        other_certificate(not_after="soon")(world)
    else:
        world.replies["hyper1"] = minions.Reply(minion="hyper1", **reply)

    ((check, where, what, fix),) = world.audit()

    assert (check, where) == ("not-checked", "hyper1")
    assert why in what and "salt hyper1 virt.audit" in fix
