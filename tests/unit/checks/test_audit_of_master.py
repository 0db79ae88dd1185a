"""An audit finds what is planted on the master, each with its fix."""

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


def option(**given):
    """Return what sets options of the master."""
    return lambda world: world.opts.update(given)


def broken_file(world):
    """Leave a configuration file that Salt cannot parse, and skips."""
    folder = world.folder / "etc/master.d"
    folder.mkdir(parents=True)
    (folder / "virt.conf").write_text("virt: [")
    (folder.parent / "master").write_text(json.dumps({"virt": world.opts.get("virt")}))
    world.opts.update(conf_file=str(folder.parent / "master"), default_include="master.d/*.conf")


def release(text, **given):
    """Return what makes Salt another release."""

    def plant(world):
        world.monkeypatch.setattr(salt.version, "__version__", text)
        world.opts.update(given)

    return plant


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


def writable(root, name, mode):
    """Return what has a file or folder of the states or the pillar that others can write."""

    def plant(world):
        path = world.folder / root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        (path if mode < 0o700 else path.parent).chmod(mode)

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
    minionkeys.accept(world.opts, "hyper9", keypairs.named("a guest")[0])
    asked(world.opts, "hyper9", {"virt_hypervisor": True})


def glob(world):
    """Have a glob match a VM."""
    world.opts["virt"] = {"hypervisors": ["hyper*", "web*"]}


def given_away(world):
    """Have a folder of the CA belong to somebody else."""
    os.chown(world.place.folder, 65534, 65534)


def old_keys(host, authority=None):
    """Return what has a host's keys as Salt 3006 made them, signed by the CA or another."""

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


def stray(path):
    """Return what puts a file into a folder of the CA, as a minion of a 3008 master can."""

    def plant(world):
        target = world.place.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"\x81\xa1a\x01")

    return plant


def stray_note(world):
    """Have a file among the notes of VMs' keys that is none."""
    minionkeys.accept(world.opts, "web1", "K")
    (minionkeys._note_path(world.opts, "any").parent / "x.p").write_bytes(b"\x81\xa1a\x01")


def reactor(tag, text):
    """Return what has a reactor at a tag."""

    def plant(world):
        path = world.folder / "crashed.sls"
        path.write_text(text)
        world.opts["reactor"] = [{tag: [str(path)]}]

    return plant


def reactor_named(as_is):
    """Return what has a reactor at libvirt's events, whose file is named in another way."""

    def plant(world):
        text = "a:\n  local.virt.start: [{tgt: h}]\n"
        (world.folder / "srv").mkdir(exist_ok=True)
        for folder in (world.folder, world.folder / "srv"):
            (folder / "crashed.sls").write_text(text)
        world.opts["file_roots"] = {"base": [str(world.folder / "srv")]}
        mapped = world.folder / "reactors.yaml"
        mapped.write_text(f"- {LIFECYCLE}: [{world.folder}/crashed.sls]\n")
        world.opts["reactor"] = {
            "served": [{LIFECYCLE: ["salt://crashed.sls?saltenv=base"]}],
            "pattern": [{LIFECYCLE: f"{world.folder}/cra*.sls"}],
            "map": str(mapped),
        }[as_is]

    return plant


LIFECYCLE = "salt/engines/libvirt_events/qemu/system/domain/lifecycle"
CHECKS = {
    "3006 before the pillar's fix": (release("3006.11"), "salt-release"),
    "3007 before the pillar's fix": (release("3007.3"), "salt-release"),
    "an older line": (release("3005.5"), "salt-release"),
    "3006 without proof": (release("3006.17", minimum_auth_version=0), "auth-version"),
    "proof by two": (option(minimum_auth_version=2), "auth-version"),
    "proof by a text": (option(minimum_auth_version="3.0"), "auth-version"),
    "no filter": (option(zmq_filtering=False), "zmq-filtering"),
    "a wrong option": (option(virt={"weights": {"cpu": "much"}}), "wrong-options"),
    "a broken file": (broken_file, "wrong-options"),
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
    "no proof of who answers": (option(minion_data_cache=False), "options"),
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
    "keys of 3006": (old_keys("hyper1"), "old-keys"),
    "candidate": (candidate, "hypervisors"),
    "a glob": (glob, "hypervisors"),
    "a planted key": (lambda world: minionkeys.accept(world.opts, "h9.p", PRIVATE), "planted-key"),
    "a state that others write": (writable("srv", "top.sls", 0o666), "file-roots"),
    "a folder that others write": (writable("srv", "web/init.sls", 0o777), "file-roots"),
    "pillar that others write": (writable("pillar", "top.sls", 0o606), "file-roots"),
    "key": (served("site/web.key"), "secrets"),
    "key by name": (served("id_ed25519"), "secrets"),
    "a file among certificates": (stray("issued/x.p"), "ca-files"),
    "a file among revocations": (stray("qemu/revoked/x.p"), "ca-files"),
    "a file beside the CA": (stray("x.p"), "ca-files"),
    "a file beside hosts": (stray("enrolled/x.p"), "ca-files"),
    "a damaged record": (stray(f"issued/{'ab' * 16}.json"), "ca-files"),
    "a file among keys": (stray_note, "ca-files"),
    "acl of one more": (option(publisher_acl={"ann": ["virt.force_off"]}), "acl"),
    "acl of files": (option(publisher_acl={"ann": ["file.line"]}), "acl"),
    "acl of somebody's own": (option(publisher_acl={"ann": ["ours.report"]}), "acl"),
    "peer_run of one": (option(peer_run={"web.*": ["virt.purge"]}), "options"),
    "a reactor": (reactor(LIFECYCLE, "a:\n  local.virt.start: [{tgt: h}]\n"), "options"),
    "a reactor of the file server": (reactor_named("served"), "options"),
    "a reactor by a pattern": (reactor_named("pattern"), "options"),
    "a reactor in a file of its own": (reactor_named("map"), "options"),
    "a reactor at all": (reactor("salt/*", "a:\n  runner.virt.start: []\n"), "options"),
}


@pytest.mark.parametrize("plant", CHECKS)
def test_what_is_planted_is_found_alone(world, plant):
    do, check = CHECKS[plant]
    do(world)

    found = world.audit()

    assert [one[0] for one in found] == [check], found
    assert all(all(part and "\n" not in part for part in one) for one in found)


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


def test_what_others_can_write_is_said_once_for_each_folder(world):
    for name in ("a.sls", "b.sls"):
        writable("srv", name, 0o666)(world)

    ((_check, _where, what, fix),) = world.audit()

    assert f"srv/a.sls and 1 more below {world.folder}/srv" in what and fix.startswith("chmod")


def test_an_id_that_is_allowed_and_has_no_key_is_found(world):
    world.opts["virt"] = {"hypervisors": [*HOSTS, "hyper3"]}

    ((check, where, _what, fix),) = world.audit()

    assert (check, where) == ("hypervisors", "hyper3") and "salt-key -a hyper3" in fix


def test_a_ca_that_ends_soon_is_found(world):
    later = NOW + timedelta(days=3650 - 60)
    found = [one for one in world.audit(later) if one[0] == "ca-ends"]

    assert len(found) == 3 and all("rotate_ca" in one[3] for one in found)


def test_old_keys_are_named_with_what_ends_them(world):
    old_keys("hyper1")(world)
    old_keys("hyper 2")(world)
    folder = world.place.folder

    ((_check, _where, what, fix),) = world.audit()

    assert f"{folder}/hyper 2 and 1 more folders: libvirt lets in any reader of them" in what
    assert fix.endswith(f"virt_pki.rotate_ca; then rm -r '{folder}/hyper 2' {folder}/hyper1")


def test_old_keys_of_a_ca_that_has_gone_are_only_removed(world):
    old_keys("hyper1", ca.create("salted", NOW))(world)

    ((_check, _where, what, fix),) = world.audit()

    assert "nothing needs them" in what and fix == f"rm -r {world.place.folder}/hyper1"


def test_what_cannot_be_told_of_old_keys_counts_as_trusted(world):
    old_keys("hyper1", ca.create("salted", NOW))(world)
    (world.place.folder / "hyper1/servercert.pem").write_text("not one")

    ((_check, _where, what, _fix),) = world.audit()

    assert "libvirt lets in any reader of them" in what


def test_a_master_without_hypervisors_and_a_ca_is_looked_at_itself(opts, monkeypatch):
    opts.update(minimum_auth_version=3, zmq_filtering=True, virt={})
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: {})

    assert run.audit(Cloud.of(opts), NOW) == {"findings": [], "checked": []}


def test_what_only_looks_may_be_given_to_others():
    looks = ["test.ping", "virt.query", "network.interfaces", "state.show_top", "mine.get"]
    wheels = {"@wheel": ["key.list_all", "key.finger"], "@runner": ["manage.status", "jobs.*"]}

    assert (describe_grants(["virt.vm_state", {"*": looks}, wheels, "@jobs", 7, "("])) == []


@pytest.mark.parametrize(
    "plant",
    [
        reactor(LIFECYCLE, "a:\n  runner.slack.post: []\n"),
        reactor("salt/minion/*/start", "a:\n  local.virt.start: [{tgt: h}]\n"),
        option(reactor=[{LIFECYCLE: ["salt://gone.sls"]}, "odd", {LIFECYCLE: None}]),
        option(peer_run={"web.*": ["manage.status", "jobs.active"]}),
        option(peer={".*": ["test.ping", "mine.get"]}),
        option(external_auth={"file": {"^filename": "/etc/salt/users", "ann": ["test.ping"]}}),
    ],
)
def test_what_only_looks_or_tells_is_not_named(world, plant):
    plant(world)

    assert world.audit() == []


def test_each_grant_is_named_with_what_it_gives(world):
    world.opts["publisher_acl"] = {"ann": ["cmd.run", "test.ping", "file.line"]}

    ((_check, _where, what, fix),) = world.audit()

    assert what == (
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
    planted = {check for checks in (CHECKS, on_a_host) for _do, check in checks.values()}
    planted |= {row[0] for row in of_cells.values()}

    assert set(re.findall(r"^\| `([a-z-]+)`", rows, re.M)) == planted | {"ca-ends"}
