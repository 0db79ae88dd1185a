"""An audit finds what is planted, each with its fix, and nothing on a cloud as the docs have it."""

import dataclasses
import os
from datetime import timedelta
from types import SimpleNamespace

import keypairs
import pytest
import salt.cache
import salt.version
from auditkit import HOSTS, NOW, World, display, host_facts, key
from saltvirt.fleet import hints, keys, minions
from saltvirt.fleet.audit import ofmaster, run
from saltvirt.fleet.audit.finding import granted
from saltvirt.fleet.cloud import Cloud
from saltvirt.pki.authorities import Authorities

PRIVATE = "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """CAs, and what two hosts say that have certificates of them: signing takes its time."""
    place = Authorities(tmp_path_factory.mktemp("pki") / "libvirt")
    facts = {host: host_facts(place, host) for host in HOSTS}
    return SimpleNamespace(folder=place.folder, facts=facts)


@pytest.fixture
def world(opts, tmp_path, monkeypatch, signed):
    """A master and two hosts as they should be."""
    return World(opts, tmp_path, monkeypatch, signed)


def test_nothing_falls_short_where_all_is_as_the_docs_say(world):
    assert world.audit() == []


def option(**given):
    """Return what sets options of the master."""
    return lambda world: world.opts.update(given)


def release(text, **given):
    """Return what makes Salt another release."""

    def plant(world):
        world.monkeypatch.setattr(salt.version, "__version__", text)
        world.opts.update(given)

    return plant


def host(**given):
    """Return what has hyper1 say something else."""
    return lambda world: world.say(**given)


def of_ca(name, mode):
    """Return what opens a file of the CA."""
    return lambda world: (world.place.folder / name).chmod(mode)


def served(name, text=PRIVATE):
    """Return what puts a file into the file server's folder."""

    def plant(world):
        path = world.folder / "srv" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return plant


def other_certificate(**more):
    """Return what has hyper1 show a certificate that is another in some way."""

    def plant(world):
        first, *rest = world.facts["hyper1"].certificates
        world.say(certificates=[dataclasses.replace(first, **more), *rest])

    return plant


def anothers(world):
    """Have hyper1 show a certificate of hyper2."""
    world.say(certificates=world.facts["hyper2"].certificates[:1])


def revoked(world):
    """Revoke a certificate that hyper1 has."""
    serial = world.facts["hyper1"].certificates[0].serial
    world.place.revoke([row for row in world.place.issued() if row["serial"] == serial], NOW)


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


def autosign(line):
    """Return what has a line in autosign_file."""

    def plant(world):
        (world.folder / "autosign").write_text(f"# ours\n{line}\n")
        world.opts["autosign_file"] = str(world.folder / "autosign")

    return plant


def autosign_grains(world):
    """Have keys accepted by a grain."""
    (world.folder / "grains").mkdir()
    (world.folder / "grains/uuid").write_text("1\n")
    world.opts["autosign_grains_dir"] = str(world.folder / "grains")


def candidate(world):
    """Have a minion that says it is a hypervisor."""
    keys.accept(world.opts, "hyper9", keypairs.named("a guest")[0])
    salt.cache.factory(world.opts).store("grains", "hyper9", {"virt_hypervisor": True})


def glob(world):
    """Have a glob match a VM."""
    world.opts["virt"] = {"hypervisors": ["hyper*", "web*"]}


def noted_glob(world):
    """Have a glob match a VM of a host that is silent."""
    hints.moved(world.opts, "web7", "hyper2")
    glob(world)
    world.say(vms=[])
    world.replies["hyper2"] = minions.Reply(minion="hyper2", missing=True)


def given_away(world):
    """Have a folder of the CA belong to somebody else."""
    os.chown(world.place.folder, 65534, 65534)


CHECKS = {
    "3006 before the pillar's fix": (release("3006.11"), "salt-release"),
    "3007 before the pillar's fix": (release("3007.3"), "salt-release"),
    "an older line": (release("3005.5"), "salt-release"),
    "3006 without proof": (release("3006.17", minimum_auth_version=0), "auth-version"),
    "proof by two": (option(minimum_auth_version=2), "auth-version"),
    "no filter": (option(zmq_filtering=False), "zmq-filtering"),
    "acl of virt": (option(publisher_acl={"ann": ["test.*", "virt.*"]}), "acl"),
    "acl of all": (option(publisher_acl={"ann": [".*"]}), "acl"),
    "acl by target": (option(publisher_acl={"ann": [{"hyper*": ["virt.init"]}]}), "acl"),
    "acl by argument": (option(publisher_acl={"ann": [{"*": [{"virt.init": {}}]}]}), "acl"),
    "external": (option(external_auth={"pam": {"ann": ["@runner"]}}), "acl"),
    "external runner": (option(external_auth={"pam": {"a": [{"@runner": ["virt.*"]}]}}), "acl"),
    "acl of the shell": (option(publisher_acl={"ann": ["cmd.run"]}), "acl"),
    "acl of states": (option(publisher_acl={"ann": [{"hyper*": ["state.*"]}]}), "acl"),
    "acl of a move's step": (option(publisher_acl={"ann": ["virt.migrate_step"]}), "acl"),
    "keys": (option(external_auth={"pam": {"a": [{"@wheel": ["key.accept"]}]}}), "acl"),
    "open_mode": (option(open_mode=True), "options"),
    "auto_accept": (option(auto_accept=True), "options"),
    "file_recv": (option(file_recv=True), "options"),
    "permissive": (option(permissive_pki_access=True), "options"),
    "unsigned": (option(sign_pub_messages=False), "options"),
    "old session key": (option(rotate_aes_key=False), "options"),
    "peer": (option(peer={".*": ["virt.*"]}), "options"),
    "peer of the shell": (option(peer={".*": ["cmd.run"]}), "options"),
    "peer_run": (option(peer_run={"web.*": [".*"]}), "options"),
    "autosign any": (autosign("*"), "options"),
    "autosign any by expression": (autosign(".*"), "options"),
    "autosign grains": (autosign_grains, "options"),
    "open folder": (of_ca(".", 0o770), "ca-files"),
    "folder of another": (given_away, "ca-files"),
    "open list": (of_ca("cacert.pem", 0o666), "ca-files"),
    "open key": (of_ca("cakey.pem", 0o640), "ca-keys"),
    "open key of QEMU's": (of_ca("qemu/cakey.pem", 0o644), "ca-keys"),
    "tcp": (host(plain=["0.0.0.0"]), "libvirt-open"),
    "no verification": (daemon(verifies=False), "libvirt-open"),
    "socket": (daemon(is_open_here=True), "libvirt-open"),
    "any name": (daemon(names=None), "libvirt-trust"),
    "one more name": (daemon(names=["OU=salt-virt hypervisor,*", "CN=*"]), "libvirt-trust"),
    "one more CA": (also_trusting("libvirt"), "libvirt-trust"),
    "one more CA of QEMU": (also_trusting("qemu"), "libvirt-trust"),
    "no TLS": (host(qemu={"migrate_tls_x509_verify": "1"}), "qemu-tls"),
    "QEMU takes all": (
        host(
            qemu={
                "migrate_tls_force": "1",
                "default_tls_x509_verify": "0",
                "backup_tls_x509_verify": "1",
            }
        ),
        "qemu-tls",
    ),
    "backups": (host(qemu={"migrate_tls_force": "1", "backup_tls_x509_verify": "0"}), "qemu-tls"),
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
    "another's": (anothers, "certificates"),
    "old code": (host(code="ab" * 32), "code"),
    "candidate": (candidate, "hypervisors"),
    "a glob": (glob, "hypervisors"),
    "key": (served("site/web.key"), "secrets"),
    "key by name": (served("id_ed25519"), "secrets"),
    "readable key": (host(keys=[key(0o644)]), "host-keys"),
    "key of another": (host(keys=[key(0o600, owner="nobody")]), "host-keys"),
    "key of another group": (
        host(keys=[key(0o640, most=0o640, group="users", reader="kvm")]),
        "host-keys",
    ),
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


def test_the_kinds_of_faults_are_those_of_the_page():
    assert len({check for _do, check in CHECKS.values()}) >= 15


def test_a_key_that_a_glob_would_make_a_hypervisor_is_not_to_be_accepted_unseen(world):
    autosign("hyper*")(world)
    assert world.audit() == []  # those two have their keys

    world.opts["virt"] = {"hypervisors": ["hyper*"]}
    ((check, where, what, _fix),) = world.audit()
    assert (check, where) == ("options", "master") and "of a hypervisor (hyperx)" in what


def test_pillar_that_is_served_as_files_is_found(world):
    world.opts["pillar_roots"] = {"base": [str(world.folder / "srv/pillar")]}
    assert world.audit() == []  # it is not there
    (world.folder / "srv/pillar").mkdir()

    assert [one[0] for one in world.audit()] == ["secrets"]


def test_links_in_the_file_servers_folder_are_followed_once(world):
    (world.folder / "elsewhere").mkdir()
    (world.folder / "elsewhere/a.pem").write_text(PRIVATE)
    (world.folder / "elsewhere/loop").symlink_to(world.folder / "srv")
    (world.folder / "srv/there").symlink_to(world.folder / "elsewhere")
    served("public.pem", "-----BEGIN CERTIFICATE-----\n")(world)

    assert [one[0] for one in world.audit()] == ["secrets"]


def test_an_id_that_is_allowed_and_has_no_key_is_found(world):
    world.opts["virt"] = {"hypervisors": [*HOSTS, "hyper3"]}

    ((check, where, _what, fix),) = world.audit()

    assert (check, where) == ("hypervisors", "hyper3") and "salt-key -a hyper3" in fix


def test_a_vm_that_a_glob_matches_is_found_on_a_silent_host_too(world):
    noted_glob(world)

    found = {(check, where) for check, where, _what, _fix in world.audit()}

    assert found == {("hypervisors", "web7"), ("not-checked", "hyper2")}


def test_a_ca_that_ends_soon_is_found(world):
    later = NOW + timedelta(days=3650 - 60)
    found = [one for one in world.audit(later) if one[0] == "ca-ends"]

    assert len(found) == 3 and all("rotate_ca" in one[3] for one in found)


SILENT = {
    "silent": ({"missing": True}, "does not answer"),
    "unsigned": ({"missing": True, "error": "it poses"}, "it poses"),
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


def test_a_master_without_hypervisors_and_a_ca_is_looked_at_itself(opts, monkeypatch):
    opts.update(minimum_auth_version=3, zmq_filtering=True, virt={})
    monkeypatch.setattr(minions, "ask", lambda *_args: {})

    assert run.audit(Cloud.of(opts), NOW) == {"findings": [], "checked": []}


@pytest.mark.parametrize(
    ("text", "firsts"),
    [("3006.12", {3006: 12}), ("3008.0rc1", {3006: 12}), ("3006.12+5.gabc", {3006: 12})],
)
def test_releases_are_read_as_salt_writes_them(text, firsts):
    assert ofmaster._is_since(text, firsts)


def test_what_only_looks_may_be_given_to_others():
    looks = ["test.ping", "virt.query", "network.interfaces", "state.show_top", "mine.get"]
    wheels = {"@wheel": ["key.list_all", "key.finger"], "@runner": ["manage.status", "jobs.*"]}

    assert list(granted(["virt.vm_state", {"*": looks}, wheels, "@jobs", 7, "("])) == []


def test_the_masters_user_may_do_all(world):
    world.opts.update(publisher_acl={"root": [".*"]}, external_auth={"pam": None})

    assert world.audit() == []
