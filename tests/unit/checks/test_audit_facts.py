"""What a host says of itself to an audit is what its files, its sockets and its libvirt have."""

import grp
import json
import socket
from dataclasses import replace
from datetime import datetime

import pytest
from saltvirt.ca import ca, store
from saltvirt.ca.store import utc_now
from saltvirt.certificates.host import installed
from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.audit.host import conffiles, facts
from saltvirt.core import filecontent, wire
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle
from saltvirt.network.firewall import bootunits, forwarding, rules

CONF = """
# tls_allowed_dn_list = ["CN=commented"]
tls_allowed_dn_list = ["OU=salt-virt hypervisor,*",
    # "CN=out",
    "CN=in"]
  tls_no_verify_certificate=1
auth_unix_rw = "none"   # as before
tcp_port = "16600"
empty = []
"""
DOMAIN = """<domain type='test'><name>{name}</name><memory>1024</memory><os><type>hvm</type></os>
<devices><graphics type='vnc' passwd='{password}'><listen type='address' address='0.0.0.0'/>
</graphics><serial type='tcp'><source mode='bind' host='0.0.0.0' service='2300'/></serial>
<serial type='udp'><source mode='bind' host='127.0.0.1' service='2301'/>
<source mode='connect' host='127.0.0.1' service='2302'/></serial>
<interface type='{nic}'/>
<serial type='tcp'><source mode='connect' host='10.0.0.1' service='2300' tls='yes'/></serial>
</devices></domain>"""
TEST = HostSettings(uri="test:///default")


def test_libvirts_files_are_read_as_libvirt_reads_them():
    assert conffiles.parse_settings(CONF) == {
        "tls_allowed_dn_list": ["OU=salt-virt hypervisor,*", "CN=in"],
        "tls_no_verify_certificate": "1",
        "auth_unix_rw": "none",
        "tcp_port": "16600",
        "empty": [],
    }


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_what_listens_is_read_from_the_kernel(family, address):
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        port = listening.getsockname()[1]
        assert facts.listening(conffiles.FileReader(), port) == []

        listening.listen()
        assert facts.listening(conffiles.FileReader(), port) == [address]


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A host's /etc/pki and /etc/libvirt."""
    conf = tmp_path / "libvirt"
    conf.mkdir()
    (conf / "libvirtd.conf").write_text(CONF)
    (conf / "qemu.conf").write_text('vnc_listen = "0.0.0.0"\nvnc_password = "hunter2"\nuser = "x"')
    monkeypatch.setattr(facts, "_CONF", conf)
    monkeypatch.setattr(facts, "_RUN", tmp_path / "run")
    monkeypatch.setattr(facts, "_POLKIT", (tmp_path / "polkit", tmp_path / "authority"))
    monkeypatch.setattr(bootunits, "RULES", tmp_path / "rules")
    monkeypatch.setattr(facts.enrolment, "DAEMONS", {"libvirtd": str(tmp_path / "no socket")})
    made = ca.create("a CA", utc_now())
    (tmp_path / "pki/CA").mkdir(parents=True)
    (tmp_path / "pki/CA/cacert.pem").write_bytes(ca.certificate_pem(made.certificate))
    listed = store.build_crl(made, {0xAB: utc_now()}, 1, utc_now())
    (tmp_path / "pki/CA/cacrl.pem").write_bytes(listed)
    place = installed.places(tmp_path / "pki")["libvirt-server"]
    signed = {"minion_id": "hyper1", "role": "server", "names": ["hyper1"], "addresses": []}
    key = ca.new_key()
    given = ca.sign(made, key.public_key(), **signed, now=utc_now(), days=9)
    installed.lay_down(place, key, ca.certificate_pem(given).decode())
    place.key.chmod(0o644)
    return tmp_path / "pki"


def told(base, settings=TEST):
    """Return what a host says, as it comes to the master."""
    with connect.open_connection(TEST, readonly=False) as conn:
        for name, password, nic in (("open", "", "user"), ("closed", "secret", "ethernet")):
            lifecycle.define(conn, DOMAIN.format(name=name, password=password, nic=nic))
        said = wire.plain(
            facts.read_host_facts(conn, settings, str(base), str(base / "minion.pem"))
        )
        for name in ("open", "closed"):
            conn.lookupByName(name).undefine()
    assert not {"hunter2", "secret"} & set(repr(said).replace("'", " ").split())
    return wire.read("hyper1", "virt.audit", HostAudit, said)


def test_a_host_says_what_its_files_have(base):
    said = told(base)

    (daemon,) = said.daemons
    assert daemon.names == ["OU=salt-virt hypervisor,*", "CN=in"] and not daemon.verifies
    assert said.qemu == {"vnc_listen": "0.0.0.0", "vnc_password": "set", "user": "x"}
    assert said.trusted == {"libvirt": ca.fingerprints((base / "CA/cacert.pem").read_bytes())}
    assert [(one.path, len(one.serial)) for one in said.certificates] == [
        (f"{base}/libvirt/servercert.pem", 32)
    ]
    assert [(one.mode, one.most, one.owner) for one in said.keys] == [(0o644, 0o600, "root")]
    assert said.code == filecontent.of_code() and said.unreadable == {}
    assert said.revoked["libvirt"].serials == [f"{0xAB:032x}"]
    assert datetime.fromisoformat(said.revoked["libvirt"].ends) > utc_now()


def test_a_port_may_be_the_name_of_a_service(base):
    path = base.parent / "libvirt/libvirtd.conf"
    path.write_text('tcp_port = "ssh"\n')
    assert told(base).unreadable == {}
    path.write_text('tcp_port = "nosuchservice"\n')
    assert "not found" in told(base).unreadable["/etc/services"]


def test_a_host_says_which_consoles_listen(base):
    consoles = [(one.vm, one.address, one.tls) for one in told(base).consoles]

    assert [one for one in consoles if one[0] == "open"] == [
        ("open", "0.0.0.0", None),
        ("open", "127.0.0.1", None),
    ]


@pytest.fixture
def there(base):
    """A host's own users: /etc/libvirt, libvirt's sockets and polkit's rules."""
    (base.parent / "run").mkdir()
    (base.parent / "polkit/rules.d").mkdir(parents=True)
    return base.parent


@pytest.mark.parametrize(
    ("daemon", "name"),
    [
        ("libvirtd", "libvirt-sock"),
        ("virtqemud", "virtqemud-sock"),
        ("virtlxcd", "virtlxcd-sock"),
    ],
)
def test_a_socket_for_all_without_a_check_is_found(there, base, daemon, name):
    path = there / "libvirt" / f"{daemon}.conf"
    path.write_text('auth_unix_rw = "none"\n')
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(there / "run" / name))
        (there / "run" / name).chmod(0o666)
        assert str(path) in told(base).local.sockets

        (there / "run" / name).chmod(0o660)
        assert told(base).local.sockets == []
        (there / "run" / name).chmod(0o666)
        path.write_text('auth_unix_rw = "polkit"\n')
        assert told(base).local.sockets == []


def test_a_socket_for_all_is_found_where_the_daemons_file_has_put_it(there, base):
    folder, path = there / "elsewhere", there / "libvirt/virtqemud.conf"
    folder.mkdir()
    path.write_text(f'auth_unix_rw = "none"\nunix_sock_dir = "{folder}"\n')
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "virtqemud-sock"))
        (folder / "virtqemud-sock").chmod(0o666)

        assert told(base).local.sockets == [str(path)]


def test_operators_rules_of_polkit_are_found_wherever_it_looks_for_them(there, base):
    text = "[x]\nAction=org.libvirt.unix.manage\nResultAny=yes\n"
    for name in ("10-vendor.d", "50-local.d"):
        (there / "authority" / name).mkdir(parents=True)
        (there / "authority" / name / "ann.pkla").write_text(text)

    assert told(base).local.rules == [f"{there}/authority/50-local.d/ann.pkla"]


def test_rules_of_a_firewall_without_a_table_for_what_is_forwarded_are_named(base, monkeypatch):
    assert told(base).unguarded == []
    folder = base.parent / "rules"
    folder.mkdir()
    (folder / "firewalld-salt_virt.rules").write_text("")

    assert told(base).unguarded == ["salt_virt"]
    (folder / "nftables-salt_virt_forward.nft").write_text("")
    monkeypatch.setattr(forwarding, "is_found", lambda program: program == "nft")
    assert told(base).unguarded == []


def test_rules_that_let_through_what_is_forwarded_are_named(base):
    assert told(base).outdated == []
    folder = base.parent / "rules"
    folder.mkdir()
    text, _mark = rules.nftables("x", [(16514, 16514)], {4: [], 6: []}, {4: [], 6: []})
    # That of a release without such rules, that of one with some of them, this one's.
    before = text[: text.index("\tchain forward")] + "}\n"
    some = text.replace("tcp flags", "udp dport")
    for name, one in (("a", before), ("b_forward", some), ("c", text), ("d_forward", text)):
        (folder / f"nftables-{name}.nft").write_text(one)

    assert told(base).outdated == ["a", "b"]


def test_vms_that_send_as_the_host_are_named(base):
    assert told(base).user_nics == ["open"]


def test_cached_images_with_another_name_are_named(base, tmp_path):
    settings = replace(TEST, images=str(tmp_path), state_dir=str(tmp_path / "state"))
    kept, golden = tmp_path / "base" / f"{'a' * 64}.qcow2", tmp_path / "golden.qcow2"
    kept.parent.mkdir()
    kept.write_bytes(b"x")
    note = {"path": str(kept), "source": str(golden), "stat": [1, 1]}
    kept.with_suffix(".json").write_text(json.dumps(note))
    assert told(base, settings).linked_images == []

    golden.hardlink_to(kept)

    assert told(base, settings).linked_images == [[str(kept), str(golden)]]


def test_rules_of_polkit_that_let_somebody_in_are_found(there, base):
    texts = {
        "50-in.rules": 'if (action.id == "org.libvirt.unix.manage") return polkit.Result.YES;',
        "51-out.rules": 'if (action.id == "org.libvirt.unix.manage") return polkit.Result.NO;',
        "52-other.rules": 'if (action.id == "org.example") return polkit.Result.YES;',
        "53-in.pkla": "Action=org.libvirt.unix.manage\nResultAny = yes\n",
        "54-in.rules.dpkg-old": "org.libvirt.unix.manage polkit.Result.YES",
        "55-ask.rules": "polkit.addRule(a, 'org.libvirt.unix.manage', polkit.Result.AUTH_ADMIN)\n"
        "polkit.addRule(b, 'org.freedesktop.NetworkManager', polkit.Result.YES)",
        "56-comment.rules": "// addRule org.libvirt.unix.manage polkit.Result.YES\n",
        "57-in.rules": "polkit.addRule(a => a.id.indexOf('org.libvirt.') == 0 ? 'yes' : '')",
        "58-in.pkla": "[x]\nAction=org.freedesktop.*\n[y]\nAction=org.libvirt.*\nResultAny=yes\n",
    }
    for name, text in texts.items():
        (there / "polkit/rules.d" / name).write_text(text)

    found = told(base).local.rules

    let_in = ("50-in.rules", "53-in.pkla", "57-in.rules", "58-in.pkla")
    assert found == [f"{there}/polkit/rules.d/{name}" for name in let_in]


def test_libvirts_group_is_read_administrators_left_out(there, base, monkeypatch):
    # A stand-in: this machine's groups are not the tests' to change.
    groups = {"libvirt": ["ann", "bob", "root"], "sudo": ["bob"]}

    def getgrnam(name):
        return grp.struct_group((name, "x", 4000 + len(name), groups[name]))

    with monkeypatch.context() as patched:
        patched.setattr(facts.grp, "getgrnam", getgrnam)
        assert facts._users() == ["ann"]


def test_a_host_says_whether_displays_have_passwords_and_not_which(base):
    said = told(base)

    shown = {one.vm: (one.type, one.address, one.has_password) for one in said.displays}
    assert shown == {"open": ("vnc", "0.0.0.0", False), "closed": ("vnc", "0.0.0.0", True)}
    assert {"open", "closed"} <= set(said.vms)


def test_what_cannot_be_read_is_said_and_the_rest_stands(base):
    (base / "CA/cacert.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (base / "libvirt/servercert.pem").write_text("no certificate")

    said = told(base)

    assert set(said.unreadable) == {f"{base}/CA/cacert.pem", f"{base}/libvirt/servercert.pem"}
    assert said.certificates == [] and said.trusted == {} and said.keys


def test_a_library_is_the_same_wherever_it_is_and_another_with_one_other_file(tmp_path):
    for place in ("a", "b"):
        for name in ("x.py", "sub/y.py", "modules/virt.py", "sub/__pycache__/y.pyc"):
            (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_text(name)
    (tmp_path / "b/modules/virt.py").write_text("is not of the library")
    (tmp_path / "b/sub/__pycache__/y.pyc").write_text("nor is this")

    assert filecontent.of_code(tmp_path / "a") == filecontent.of_code(tmp_path / "b")
    (tmp_path / "b/sub/y.py").write_text("another")
    assert filecontent.of_code(tmp_path / "a") != filecontent.of_code(tmp_path / "b")


@pytest.mark.parametrize(
    ("virt", "compat", "wrong"),
    [
        ({}, None, []),
        ({"compat": "3006"}, "3006", []),
        ({"compat": 3005}, None, ["option virt:compat: expected 3006, found 3005"]),
        (
            {"compat": 3006, "tunnel": "yes"},
            "3006",
            ["option virt:tunnel: expected True or False, found 'yes'"],
        ),
    ],
)
def test_the_options_that_open_vms_or_cannot_be_used_are_said(tmp_path, virt, compat, wrong):
    options = config.host_settings({"virt": virt}, connection="test:///default")

    with connect.open_connection(options, readonly=False) as conn:
        said = facts.read_host_facts(conn, options, str(tmp_path), str(tmp_path / "minion.pem"))

    assert (said.compat, said.wrong_options) == (compat, wrong)
