"""An audit finds each fault planted on the master, with its fix."""

import json
import os
import re
from datetime import timedelta
from pathlib import Path

import keypairs
import pytest
import salt.version
from askedpillar import asked
from auditkit import HOSTS, NOW
from saltvirt.ca import ca
from saltvirt.checks.audit.master import run
from saltvirt.checks.audit.master.granted import describe_grants
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from test_audit_findings import CHECKS as on_a_host
from test_checks_failing_cells import PLANTED as of_cells

PRIVATE = "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"


def with_options(**options):
    """Return a fault: the master has these options."""
    return lambda world: world.opts.update(options)


def with_broken_file(world):
    """Leave a configuration file that Salt cannot parse, and skips."""
    folder = world.folder / "etc/master.d"
    folder.mkdir(parents=True)
    (folder / "virt.conf").write_text("virt: [")
    (folder.parent / "master").write_text(json.dumps({"virt": world.opts.get("virt")}))
    world.opts.update(conf_file=str(folder.parent / "master"), default_include="master.d/*.conf")


def with_salt_release(text, **options):
    """Return a fault: the master runs this release of Salt."""

    def plant(world):
        world.monkeypatch.setattr(salt.version, "__version__", text)
        world.opts.update(options)

    return plant


def with_ca_file(name, mode):
    """Return a fault: a file of the CA has this mode."""
    return lambda world: (world.place.folder / name).chmod(mode)


def with_served_file(name, text=PRIVATE):
    """Return a fault: the file server's folder has this file."""

    def plant(world):
        path = world.folder / "srv" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return plant


def with_writable(root, name, mode):
    """Return a fault: other users can write to a file or folder of the states or the pillar."""

    def plant(world):
        path = world.folder / root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        (path if mode < 0o700 else path.parent).chmod(mode)

    return plant


def with_autosign(line):
    """Return a fault: autosign_file has this line."""

    def plant(world):
        (world.folder / "autosign").write_text(f"# ours\n{line}\n")
        world.opts["autosign_file"] = str(world.folder / "autosign")

    return plant


def with_autosign_grains(world):
    """Let a grain accept keys."""
    (world.folder / "grains").mkdir()
    (world.folder / "grains/uuid").write_text("1\n")
    world.opts["autosign_grains_dir"] = str(world.folder / "grains")


def with_candidate(world):
    """Add a minion that claims to be a hypervisor."""
    minionkeys.accept(world.opts, "hyper9", keypairs.named("a guest")[0])
    asked(world.opts, "hyper9", {"virt_hypervisor": True})


def with_glob(world):
    """Let a glob match a VM."""
    world.opts["virt"] = {"hypervisors": ["hyper*", "web*"]}


def with_foreign_owner(world):
    """Give a folder of the CA to another user."""
    os.chown(world.place.folder, 65534, 65534)


def with_old_keys(host, authority=None):
    """Return a fault: a host's keys as Salt 3006 made them, signed by the CA or another one."""

    def plant(world):
        folder = world.place.folder / host
        folder.mkdir()
        signer = authority or world.place.stores["libvirt"].authority(NOW)
        key = ca.new_key()
        signed = ca.sign(
            signer,
            key.public_key(),
            minion_id=host,
            role="server",
            names=[host],
            addresses=[],
            now=NOW,
            days=365,
        )
        (folder / "serverkey.pem").write_bytes(ca.key_pem(key))
        (folder / "servercert.pem").write_bytes(ca.certificate_pem(signed))

    return plant


def with_stray_file(path):
    """Return a fault: a file in a folder of the CA, where a minion of a 3008 master can put it."""

    def plant(world):
        target = world.place.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"\x81\xa1a\x01")

    return plant


def with_stray_record(world):
    """Put a foreign file among the records of VMs' keys."""
    minionkeys.accept(world.opts, "web1", "K")
    (minionkeys._note_path(world.opts, "any").parent / "x.p").write_bytes(b"\x81\xa1a\x01")


def with_reactor(tag, text):
    """Return a fault: a reactor for this tag."""

    def plant(world):
        path = world.folder / "crashed.sls"
        path.write_text(text)
        world.opts["reactor"] = [{tag: [str(path)]}]

    return plant


def with_reactor_file_named(as_is):
    """Return a fault: a reactor for libvirt's events with another way to name its file."""

    def plant(world):
        text = "a:\n  local.virt.start: [{tgt: h}]\n"
        (world.folder / "srv").mkdir(exist_ok=True)
        for folder in (world.folder, world.folder / "srv"):
            (folder / "crashed.sls").write_text(text)
        world.opts["file_roots"] = {"base": [str(world.folder / "srv")]}
        reactor_file = world.folder / "reactors.yaml"
        reactor_file.write_text(f"- {LIFECYCLE}: [{world.folder}/crashed.sls]\n")
        world.opts["reactor"] = {
            "served": [{LIFECYCLE: ["salt://crashed.sls?saltenv=base"]}],
            "pattern": [{LIFECYCLE: f"{world.folder}/cra*.sls"}],
            "map": str(reactor_file),
        }[as_is]

    return plant


LIFECYCLE = "salt/engines/libvirt_events/qemu/system/domain/lifecycle"
CHECKS = {
    "3006 before the pillar's fix": (with_salt_release("3006.11"), "salt-release"),
    "3007 before the pillar's fix": (with_salt_release("3007.3"), "salt-release"),
    "an older line": (with_salt_release("3005.5"), "salt-release"),
    "3006 without proof": (with_salt_release("3006.17", minimum_auth_version=0), "auth-version"),
    "proof by two": (with_options(minimum_auth_version=2), "auth-version"),
    "proof by a text": (with_options(minimum_auth_version="3.0"), "auth-version"),
    "no filter": (with_options(zmq_filtering=False), "zmq-filtering"),
    "a wrong option": (with_options(virt={"weights": {"cpu": "much"}}), "wrong-options"),
    "a broken file": (with_broken_file, "wrong-options"),
    "acl of virt": (with_options(publisher_acl={"ann": ["test.*", "virt.*"]}), "acl"),
    "acl of all": (with_options(publisher_acl={"ann": [".*"]}), "acl"),
    "acl by target": (with_options(publisher_acl={"ann": [{"hyper*": ["virt.init"]}]}), "acl"),
    "acl by argument": (with_options(publisher_acl={"ann": [{"*": [{"virt.init": {}}]}]}), "acl"),
    "external": (with_options(external_auth={"pam": {"ann": ["@runner"]}}), "acl"),
    "external runner": (
        with_options(external_auth={"pam": {"a": [{"@runner": ["virt.*"]}]}}),
        "acl",
    ),
    "acl of the shell": (with_options(publisher_acl={"ann": ["cmd.run"]}), "acl"),
    "acl of states": (with_options(publisher_acl={"ann": [{"hyper*": ["state.*"]}]}), "acl"),
    "acl of a move's step": (with_options(publisher_acl={"ann": ["virt.migrate_step"]}), "acl"),
    "keys": (with_options(external_auth={"pam": {"a": [{"@wheel": ["key.accept"]}]}}), "acl"),
    "open_mode": (with_options(open_mode=True), "options"),
    "auto_accept": (with_options(auto_accept=True), "options"),
    "file_recv": (with_options(file_recv=True), "options"),
    "permissive": (with_options(permissive_pki_access=True), "options"),
    "unsigned": (with_options(sign_pub_messages=False), "options"),
    "no proof of who answers": (with_options(minion_data_cache=False), "options"),
    "old session key": (with_options(rotate_aes_key=False), "options"),
    "peer": (with_options(peer={".*": ["virt.*"]}), "options"),
    "peer of the shell": (with_options(peer={".*": ["cmd.run"]}), "options"),
    "peer_run": (with_options(peer_run={"web.*": [".*"]}), "options"),
    "autosign any": (with_autosign("*"), "options"),
    "autosign any by expression": (with_autosign(".*"), "options"),
    "autosign grains": (with_autosign_grains, "options"),
    "open folder": (with_ca_file(".", 0o770), "ca-files"),
    "folder of another": (with_foreign_owner, "ca-files"),
    "open list": (with_ca_file("cacert.pem", 0o666), "ca-files"),
    "open key": (with_ca_file("cakey.pem", 0o640), "ca-keys"),
    "open key of QEMU's": (with_ca_file("qemu/cakey.pem", 0o644), "ca-keys"),
    "keys of 3006": (with_old_keys("hyper1"), "old-keys"),
    "candidate": (with_candidate, "hypervisors"),
    "a glob": (with_glob, "hypervisors"),
    "a planted key": (lambda world: minionkeys.accept(world.opts, "h9.p", PRIVATE), "planted-key"),
    "a state that others write": (with_writable("srv", "top.sls", 0o666), "file-roots"),
    "a folder that others write": (with_writable("srv", "web/init.sls", 0o777), "file-roots"),
    "pillar that others write": (with_writable("pillar", "top.sls", 0o606), "file-roots"),
    "key": (with_served_file("site/web.key"), "secrets"),
    "key by name": (with_served_file("id_ed25519"), "secrets"),
    "a file among certificates": (with_stray_file("issued/x.p"), "ca-files"),
    "a file among revocations": (with_stray_file("qemu/revoked/x.p"), "ca-files"),
    "a file beside the CA": (with_stray_file("x.p"), "ca-files"),
    "a file beside hosts": (with_stray_file("enrolled/x.p"), "ca-files"),
    "a damaged record": (with_stray_file(f"issued/{'ab' * 16}.json"), "ca-files"),
    "a file among keys": (with_stray_record, "ca-files"),
    "acl of one more": (with_options(publisher_acl={"ann": ["virt.force_off"]}), "acl"),
    "acl of files": (with_options(publisher_acl={"ann": ["file.line"]}), "acl"),
    "acl of somebody's own": (with_options(publisher_acl={"ann": ["ours.report"]}), "acl"),
    "peer_run of one": (with_options(peer_run={"web.*": ["virt.purge"]}), "options"),
    "a reactor": (with_reactor(LIFECYCLE, "a:\n  local.virt.start: [{tgt: h}]\n"), "options"),
    "a reactor of the file server": (with_reactor_file_named("served"), "options"),
    "a reactor by a pattern": (with_reactor_file_named("pattern"), "options"),
    "a reactor in a file of its own": (with_reactor_file_named("map"), "options"),
    "a reactor at all": (with_reactor("salt/*", "a:\n  runner.virt.start: []\n"), "options"),
}


@pytest.mark.parametrize("plant", CHECKS)
def test_each_planted_fault_is_the_only_finding(world, plant):
    do, check = CHECKS[plant]
    do(world)

    findings = world.audit()

    assert [finding[0] for finding in findings] == [check], findings
    assert all(all(part and "\n" not in part for part in finding) for finding in findings)


def test_a_waiting_key_that_a_glob_would_allow_is_found(world):
    with_autosign("hyper*")(world)
    assert world.audit() == []  # the hosts in the options have their keys

    world.opts["virt"] = {"hypervisors": ["hyper*"]}
    ((check, where, text, _fix),) = world.audit()
    assert (check, where) == ("options", "master") and "of a hypervisor (hyperx)" in text


def test_pillar_that_is_served_as_files_is_found(world):
    world.opts["pillar_roots"] = {"base": [str(world.folder / "srv/pillar")]}
    assert world.audit() == []  # the folder does not exist yet
    (world.folder / "srv/pillar").mkdir()

    assert [finding[0] for finding in world.audit()] == ["secrets"]


def test_links_in_the_file_servers_folder_are_followed_once(world):
    (world.folder / "elsewhere").mkdir()
    (world.folder / "elsewhere/a.pem").write_text(PRIVATE)
    (world.folder / "elsewhere/loop").symlink_to(world.folder / "srv")
    (world.folder / "srv/there").symlink_to(world.folder / "elsewhere")
    with_served_file("public.pem", "-----BEGIN CERTIFICATE-----\n")(world)

    assert [finding[0] for finding in world.audit()] == ["secrets"]


def test_writable_files_are_one_finding_for_each_folder(world):
    for name in ("a.sls", "b.sls"):
        with_writable("srv", name, 0o666)(world)

    ((_check, _where, text, fix),) = world.audit()

    assert f"srv/a.sls and 1 more below {world.folder}/srv" in text and fix.startswith("chmod")


def test_an_allowed_id_without_a_key_is_found(world):
    world.opts["virt"] = {"hypervisors": [*HOSTS, "hyper3"]}

    ((check, where, _text, fix),) = world.audit()

    assert (check, where) == ("hypervisors", "hyper3") and "salt-key -a hyper3" in fix


def test_a_ca_that_ends_soon_is_found(world):
    later = NOW + timedelta(days=3650 - 60)
    findings = [finding for finding in world.audit(later) if finding[0] == "ca-ends"]

    assert len(findings) == 3 and all("rotate_ca" in finding[3] for finding in findings)


def test_old_keys_are_named_with_their_remedy(world):
    with_old_keys("hyper1")(world)
    with_old_keys("hyper 2")(world)
    folder = world.place.folder

    ((_check, _where, text, fix),) = world.audit()

    assert f"{folder}/hyper 2 and 1 more folders: libvirt lets in any reader of them" in text
    assert fix.endswith(f"virt_pki.rotate_ca; then rm -r '{folder}/hyper 2' {folder}/hyper1")


def test_old_keys_of_a_ca_that_has_gone_are_only_removed(world):
    with_old_keys("hyper1", ca.create("salted", NOW))(world)

    ((_check, _where, text, fix),) = world.audit()

    assert "nothing needs them" in text and fix == f"rm -r {world.place.folder}/hyper1"


def test_old_keys_of_an_unknown_ca_count_as_trusted(world):
    with_old_keys("hyper1", ca.create("salted", NOW))(world)
    (world.place.folder / "hyper1/servercert.pem").write_text("not one")

    ((_check, _where, text, _fix),) = world.audit()

    assert "libvirt lets in any reader of them" in text


def test_a_master_without_hypervisors_and_without_a_ca_is_audited(opts, monkeypatch):
    opts.update(minimum_auth_version=3, zmq_filtering=True, virt={})
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: {})

    assert run.audit(Cloud.of(opts), NOW) == {"findings": [], "checked": []}


def test_functions_that_only_read_may_be_granted():
    functions = ["test.ping", "virt.query", "network.interfaces", "state.show_top", "mine.get"]
    wheels = {"@wheel": ["key.list_all", "key.finger"], "@runner": ["manage.status", "jobs.*"]}

    assert (describe_grants(["virt.vm_state", {"*": functions}, wheels, "@jobs", 7, "("])) == []


@pytest.mark.parametrize(
    "plant",
    [
        with_reactor(LIFECYCLE, "a:\n  runner.slack.post: []\n"),
        with_reactor("salt/minion/*/start", "a:\n  local.virt.start: [{tgt: h}]\n"),
        with_options(reactor=[{LIFECYCLE: ["salt://gone.sls"]}, "odd", {LIFECYCLE: None}]),
        with_options(peer_run={"web.*": ["manage.status", "jobs.active"]}),
        with_options(peer={".*": ["test.ping", "mine.get"]}),
        with_options(
            external_auth={"file": {"^filename": "/etc/salt/users", "ann": ["test.ping"]}}
        ),
    ],
)
def test_grants_to_read_or_to_notify_are_not_named(world, plant):
    plant(world)

    assert world.audit() == []


def test_each_grant_is_named_with_what_it_gives(world):
    world.opts["publisher_acl"] = {"ann": ["cmd.run", "test.ping", "file.line"]}

    ((_check, _where, text, fix),) = world.audit()

    assert text == (
        "publisher_acl: ann may do more than look: cmd.run (runs any program), file.line (reads or "
        "writes any file)"
    )
    assert "of those that only look" in fix


def test_the_masters_user_may_do_all(world):
    world.opts.update(publisher_acl={"root": [".*"]}, external_auth={"pam": None})

    assert world.audit() == []


def test_the_page_names_every_check():
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    rows = page.partition("| Check |")[2].partition("\n\n")[0]
    planted_checks = {check for checks in (CHECKS, on_a_host) for _do, check in checks.values()}
    planted_checks |= {row[0] for row in of_cells.values()}

    assert set(re.findall(r"^\| `([a-z-]+)`", rows, re.M)) == planted_checks | {"ca-ends"}
