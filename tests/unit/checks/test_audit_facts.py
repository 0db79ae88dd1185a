"""The facts of a host for an audit are those of its files, its sockets and its libvirt."""

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
def test_listening_sockets_are_read_from_the_kernel(family, address):
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
    authority = ca.create("a CA", utc_now())
    (tmp_path / "pki/CA").mkdir(parents=True)
    (tmp_path / "pki/CA/cacert.pem").write_bytes(ca.certificate_pem(authority.certificate))
    crl = store.build_crl(authority, {0xAB: utc_now()}, 1, utc_now())
    (tmp_path / "pki/CA/cacrl.pem").write_bytes(crl)
    place = installed.places(tmp_path / "pki")["libvirt-server"]
    signed = {"minion_id": "hyper1", "role": "server", "names": ["hyper1"], "addresses": []}
    key = ca.new_key()
    certificate = ca.sign(authority, key.public_key(), **signed, now=utc_now(), days=9)
    installed.lay_down(place, key, ca.certificate_pem(certificate).decode())
    place.key.chmod(0o644)
    return tmp_path / "pki"


def read_facts(base, settings=TEST):
    """Return the facts of a host as the master reads them."""
    with connect.open_connection(TEST, readonly=False) as conn:
        for name, password, nic in (("open", "", "user"), ("closed", "secret", "ethernet")):
            lifecycle.define(conn, DOMAIN.format(name=name, password=password, nic=nic))
        plain_facts = wire.plain(
            facts.read_host_facts(conn, settings, str(base), str(base / "minion.pem"))
        )
        for name in ("open", "closed"):
            conn.lookupByName(name).undefine()
    assert not {"hunter2", "secret"} & set(repr(plain_facts).replace("'", " ").split())
    return wire.read("hyper1", "virt.audit", HostAudit, plain_facts)


def test_the_facts_are_those_of_the_hosts_files(base):
    facts_of_host = read_facts(base)

    (daemon,) = facts_of_host.daemons
    assert daemon.names == ["OU=salt-virt hypervisor,*", "CN=in"] and not daemon.verifies
    assert facts_of_host.qemu == {"vnc_listen": "0.0.0.0", "vnc_password": "set", "user": "x"}
    assert facts_of_host.trusted == {
        "libvirt": ca.fingerprints((base / "CA/cacert.pem").read_bytes())
    }
    assert [
        (certificate.path, len(certificate.serial)) for certificate in facts_of_host.certificates
    ] == [(f"{base}/libvirt/servercert.pem", 32)]
    assert [(key.mode, key.most, key.owner) for key in facts_of_host.keys] == [
        (0o644, 0o600, "root")
    ]
    assert facts_of_host.code == filecontent.of_code() and facts_of_host.unreadable == {}
    assert facts_of_host.revoked["libvirt"].serials == [f"{0xAB:032x}"]
    assert datetime.fromisoformat(facts_of_host.revoked["libvirt"].ends) > utc_now()


def test_a_port_may_be_the_name_of_a_service(base):
    path = base.parent / "libvirt/libvirtd.conf"
    path.write_text('tcp_port = "ssh"\n')
    assert read_facts(base).unreadable == {}
    path.write_text('tcp_port = "nosuchservice"\n')
    assert "not found" in read_facts(base).unreadable["/etc/services"]


def test_the_facts_have_listening_consoles(base):
    consoles = [(console.vm, console.address, console.tls) for console in read_facts(base).consoles]

    assert [listener for listener in consoles if listener[0] == "open"] == [
        ("open", "0.0.0.0", None),
        ("open", "127.0.0.1", None),
    ]


@pytest.fixture
def host_root(base):
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
def test_a_socket_for_all_without_a_check_is_found(host_root, base, daemon, name):
    path = host_root / "libvirt" / f"{daemon}.conf"
    path.write_text('auth_unix_rw = "none"\n')
    with socket.socket(socket.AF_UNIX) as socket_:
        socket_.bind(str(host_root / "run" / name))
        (host_root / "run" / name).chmod(0o666)
        assert str(path) in read_facts(base).local.sockets

        (host_root / "run" / name).chmod(0o660)
        assert read_facts(base).local.sockets == []
        (host_root / "run" / name).chmod(0o666)
        path.write_text('auth_unix_rw = "polkit"\n')
        assert read_facts(base).local.sockets == []


def test_a_socket_for_all_is_found_where_the_daemons_file_has_put_it(host_root, base):
    folder, path = host_root / "elsewhere", host_root / "libvirt/virtqemud.conf"
    folder.mkdir()
    path.write_text(f'auth_unix_rw = "none"\nunix_sock_dir = "{folder}"\n')
    with socket.socket(socket.AF_UNIX) as socket_:
        socket_.bind(str(folder / "virtqemud-sock"))
        (folder / "virtqemud-sock").chmod(0o666)

        assert read_facts(base).local.sockets == [str(path)]


def test_operators_rules_are_found_in_all_folders_of_polkit(host_root, base):
    text = "[x]\nAction=org.libvirt.unix.manage\nResultAny=yes\n"
    for name in ("10-vendor.d", "50-local.d"):
        (host_root / "authority" / name).mkdir(parents=True)
        (host_root / "authority" / name / "ann.pkla").write_text(text)

    assert read_facts(base).local.rules == [f"{host_root}/authority/50-local.d/ann.pkla"]


def test_firewall_rules_without_a_table_for_forwarded_packets_are_named(base, monkeypatch):
    assert read_facts(base).unguarded == []
    folder = base.parent / "rules"
    folder.mkdir()
    (folder / "firewalld-salt_virt.rules").write_text("")

    assert read_facts(base).unguarded == ["salt_virt"]
    (folder / "nftables-salt_virt_forward.nft").write_text("")
    monkeypatch.setattr(forwarding, "is_found", lambda program: program == "nft")
    assert read_facts(base).unguarded == []


def test_rules_that_accept_forwarded_packets_are_named(base):
    assert read_facts(base).outdated == []
    folder = base.parent / "rules"
    folder.mkdir()
    text, _mark = rules.nftables("x", [(16514, 16514)], {4: [], 6: []}, {4: [], 6: []})
    # The texts of a release without such rules, of one with a part of them, and of this one.
    old_text = text[: text.index("\tchain forward")] + "}\n"
    partial_text = text.replace("tcp flags", "udp dport")
    for name, content in (
        ("a", old_text),
        ("b_forward", partial_text),
        ("c", text),
        ("d_forward", text),
    ):
        (folder / f"nftables-{name}.nft").write_text(content)

    assert read_facts(base).outdated == ["a", "b"]


def test_vms_with_user_mode_nics_are_named(base):
    assert read_facts(base).user_nics == ["open"]


def test_cached_images_with_another_name_are_named(base, tmp_path):
    settings = replace(TEST, images=str(tmp_path), state_dir=str(tmp_path / "state"))
    cached, golden = tmp_path / "base" / f"{'a' * 64}.qcow2", tmp_path / "golden.qcow2"
    cached.parent.mkdir()
    cached.write_bytes(b"x")
    note = {"path": str(cached), "source": str(golden), "stat": [1, 1]}
    cached.with_suffix(".json").write_text(json.dumps(note))
    assert read_facts(base, settings).linked_images == []

    golden.hardlink_to(cached)

    assert read_facts(base, settings).linked_images == [[str(cached), str(golden)]]


def test_rules_of_polkit_that_grant_access_are_found(host_root, base):
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
        (host_root / "polkit/rules.d" / name).write_text(text)

    rules = read_facts(base).local.rules

    granting_names = ("50-in.rules", "53-in.pkla", "57-in.rules", "58-in.pkla")
    assert rules == [f"{host_root}/polkit/rules.d/{name}" for name in granting_names]


def test_libvirts_group_is_read_administrators_left_out(host_root, base, monkeypatch):
    # A stand-in, because tests must not change this machine's groups.
    groups = {"libvirt": ["ann", "bob", "root"], "sudo": ["bob"]}

    def getgrnam(name):
        return grp.struct_group((name, "x", 4000 + len(name), groups[name]))

    with monkeypatch.context() as patched:
        patched.setattr(facts.grp, "getgrnam", getgrnam)
        assert facts._users() == ["ann"]


def test_the_facts_say_whether_displays_have_passwords_but_not_which(base):
    facts_of_host = read_facts(base)

    displays = {
        display.vm: (display.type, display.address, display.has_password)
        for display in facts_of_host.displays
    }
    assert displays == {"open": ("vnc", "0.0.0.0", False), "closed": ("vnc", "0.0.0.0", True)}
    assert {"open", "closed"} <= set(facts_of_host.vms)


def test_unreadable_files_are_named_and_the_other_facts_stand(base):
    (base / "CA/cacert.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (base / "libvirt/servercert.pem").write_text("no certificate")

    facts_of_host = read_facts(base)

    assert set(facts_of_host.unreadable) == {
        f"{base}/CA/cacert.pem",
        f"{base}/libvirt/servercert.pem",
    }
    assert facts_of_host.certificates == [] and facts_of_host.trusted == {} and facts_of_host.keys


def test_the_digest_of_a_library_depends_on_its_files_alone(tmp_path):
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
    ("virt", "compat", "wrong_options"),
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
def test_wrong_options_and_options_that_open_vms_are_named(tmp_path, virt, compat, wrong_options):
    options = config.host_settings({"virt": virt}, connection="test:///default")

    with connect.open_connection(options, readonly=False) as conn:
        facts_of_host = facts.read_host_facts(
            conn, options, str(tmp_path), str(tmp_path / "minion.pem")
        )

    assert (facts_of_host.compat, facts_of_host.wrong_options) == (compat, wrong_options)
