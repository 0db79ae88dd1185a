"""The parameters of a move for libvirt; tests/cloud moves VMs for real."""

import socket

import libvirt
import pytest
import told
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Move
from saltvirt.libvirt.domains import migrate
from saltvirt.migration.host import peer, sending


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("hyper2", "hyper2"),
        ("qemu+tls://hyper2/system", "hyper2"),
        ("qemu+tls://hyper2:16515/system", "hyper2"),
        ("Hyper_2.example.org", "Hyper_2.example.org"),
        ("10.0.0.2", "10.0.0.2"),
        ("2001:db8::2", "[2001:db8::2]"),
        ("qemu+tls://[2001:db8::2]:16515/system", "[2001:db8::2]"),
    ],
)
def test_the_data_goes_to_the_host_of_the_target(target, host):
    peer.refuse_strange("target", target)
    uri, host_of_uri = peer.uri_of(target)

    assert host_of_uri == host
    assert uri == (target if "://" in target else f"qemu+tls://{host}/system")


@pytest.mark.parametrize(
    "target",
    [
        "qemu+tcp://hyper2/system",
        "qemu+ssh://root@10.0.0.2/system",
        "qemu+ssh://hyper2/system?command=/tmp/x",
        "qemu+unix:///system?socket=/tmp/x",
        "qemu:///system",
        "test:///default",
        "tcp://hyper2",
        "QEMU+TLS://hyper2/system",
        "qemu+tls://hyper2/session",
        "qemu+tls://hyper2/system?no_verify=1",
        "qemu+tls://hyper2/system#x",
        "qemu+tls://root:secret@hyper2/system",
        "qemu+tls://-x/system",
        "qemu+tls://hyper2:/system",
        "qemu+tls://hyper2:x/system",
        "qemu+tls:///system",
        "qemu+tls://[2001:db8::2/system",
        "hyper2?no_verify=1",
        "hyper2/system?no_verify=1#",
        "root@hyper2",
        "hyper2:16514",
        "--listen",
        "-x",
        ".",
        "a b",
        "hyper2\n",
        "",
        None,
        7,
    ],
)
def test_a_target_that_is_no_host_of_this_cloud_over_tls_is_refused(target):
    with pytest.raises(
        BadArgument, match="target: .* is not a host of this cloud; give a "
    ) as excinfo:
        peer.refuse_strange("target", target)

    assert "secret" not in str(excinfo.value) and "\n" not in str(excinfo.value)


def test_a_clear_text_target_noted_by_an_earlier_release_is_refused():
    with (
        pytest.raises(migrate.MigrationFailed, match="over TLS alone, not by 'qemu\\+tcp://hyper2"),
        migrate.target("qemu+tcp://hyper2/system"),
    ):
        pass


def test_the_peers_certificate_is_checked_against_its_name_however_many_connections():
    parameters = migrate.parameters(
        Move(parallel_connections=3), address="[2001:db8::2]", disks=["vda"], is_running=True
    )

    assert parameters["migrate_uri"] == "tcp://[2001:db8::2]"
    assert parameters["tls.destination"] == "2001:db8::2"
    assert parameters["parallel.connections"] == 3


@pytest.mark.parametrize("options", [Move(tls=False), Move(tunnel=True)])
def test_without_qemus_own_tls_no_name_is_checked(options):
    parameters = migrate.parameters(options, address="hyper2", disks=[], is_running=True)

    assert "tls.destination" not in parameters


def test_the_remedy_for_refused_post_copy_is_named_if_qemu_names_no_cause():
    message = "unable to execute QEMU command 'migrate-set-capabilities': Postcopy is not supported"

    assert "vm.unprivileged_userfaultfd=1 on both hosts" in sending._remedy(message)
    assert sending._remedy("the connection was lost") == ""


EMULATED = {"domain_type": "qemu", "state": "running"}


@pytest.mark.parametrize(
    ("qemu", "facts", "call_options", "live", "is_risky"),
    [
        ("7.2.22", EMULATED, {}, False, False),
        ("8.2.2", {**EMULATED, "state": "paused"}, {}, False, False),
        ("9.0.0", EMULATED, {}, None, False),
        ("10.0.13", EMULATED, {"live": True}, True, False),
        ("7.2.22", {**EMULATED, "domain_type": "kvm"}, {}, None, False),
        ("7.2.22", {**EMULATED, "state": "shutoff"}, {}, None, False),
        # An explicit option is honoured, with a warning.
        ("7.2.22", EMULATED, {"live": True}, True, True),
        ("7.2.22", EMULATED, {"live": False}, False, False),
        ("7.2.22", EMULATED, {"postcopy": True}, None, True),
        # After an upgrade the QEMU of a running VM is unknown.
        (None, EMULATED, {}, False, False),
        (None, EMULATED, {"live": True}, True, True),
        (None, {**EMULATED, "domain_type": "kvm"}, {}, None, False),
    ],
)
def test_an_emulated_guest_whose_qemu_loses_writes_is_paused(
    qemu, facts, call_options, live, is_risky
):
    moving, options = told.moving(**facts), Move(**call_options)

    safe_options = sending.make_lossless(options, moving, qemu)

    assert safe_options.live is live
    flags = migrate.flags(safe_options, copies=[], is_shared=False, is_running=moving.is_running)
    is_live = live is not False and moving.is_running
    assert bool(flags & libvirt.VIR_MIGRATE_LIVE) == is_live
    risks = sending.risks(options, moving, qemu)
    qemu_text = (
        f"QEMU {qemu}" if qemu else "the QEMU that it runs in, which is not the installed one,"
    )
    assert [f"{qemu_text} can lose" in risk for risk in risks] == [True] * is_risky


def test_a_host_name_that_does_not_resolve_is_not_mistaken_for_a_firewall(monkeypatch):
    def unknown(*_args):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)

    with pytest.raises(migrate.MigrationFailed) as excinfo:
        peer.refuse_unreachable("hyper2")

    message = str(excinfo.value)
    assert message.startswith("this host finds no address for hyper2: Name or service not known; ")
    assert "firewall" not in message


@pytest.mark.parametrize(
    ("error_text", "renews"),
    [
        ("The client certificate /etc/pki/libvirt/clientcert.pem has expired", True),
        ("authentication failed: Failed to verify peer's certificate", False),
    ],
)
def test_the_error_of_an_expired_certificate_names_its_renewal(monkeypatch, error_text, renews):
    def refuse(_uri):
        raise libvirt.libvirtError(error_text)

    monkeypatch.setattr(migrate, "_refuse_unreachable", lambda _uri: None)
    monkeypatch.setattr(migrate, "_answer_keepalives", lambda: None)
    monkeypatch.setattr(libvirt, "open", refuse)

    with pytest.raises(migrate.MigrationFailed) as excinfo:
        peer.refuse_unreachable("hyper2")

    assert str(excinfo.value).startswith("qemu+tls://hyper2/system does not let this host in: ")
    assert str(excinfo.value).endswith("; new ones: salt-run virt_pki.renew") is renews
