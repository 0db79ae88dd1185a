"""A key is good for one use: QEMU's opens no libvirtd, libvirt's no QEMU, a minion's neither."""

import subprocess

import pytest
from cloudkit import reach, wait
from labkit import node

MINE = """set -e
rm -rf {to}; mkdir -p {to}; cd {to}
cp /etc/pki/{ca} {ca_name}; cp /etc/pki/{cert} {cert_name}; cp /etc/pki/{key} {key_name}
"""
# The minion's own key, certified by itself.
MINIONS = """set -e
cd {to}
key=/etc/salt/pki/minion/minion.pem
openssl req -x509 -key $key -out {cert_name} -subj '/OU=salt-virt hypervisor/CN=hyper1' -days 2
cp $key {key_name}
"""
KEYS = {
    "libvirt": ("libvirt/clientcert.pem", "libvirt/private/clientkey.pem"),
    "qemu": ("qemu/client-cert.pem", "qemu/client-key.pem"),
}
LIBVIRT = {"ca_name": "cacert.pem", "cert_name": "clientcert.pem", "key_name": "clientkey.pem"}
QEMU = {"ca_name": "ca-cert.pem", "cert_name": "client-cert.pem", "key_name": "client-key.pem"}
# One of those that are open to the other hypervisors.
PORT = 49200
# Whoever has a server's key and certificate, and says that it is libvirtd.
POSER = """import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.num_tickets = 0  # libvirt's client takes one for a broken connection
context.load_cert_chain("/etc/pki/{cert}", "/etc/pki/{key}")
with socket.create_server(("", {port})) as listening:
    print("listening", flush=True)
    connection, _address = listening.accept()
    try:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.sendall(b"\1")  # what libvirtd says first: that it has looked at the client
            print("trusted" if secured.recv(1) else "left", flush=True)
    except OSError as error:
        print("refused", error, flush=True)
"""
SERVERS = {
    "libvirt": ("libvirt/servercert.pem", "libvirt/private/serverkey.pem"),
    "qemu": ("qemu/server-cert.pem", "qemu/server-key.pem"),
}


@pytest.fixture(scope="module", autouse=True)
def secured(cloud):
    """Hosts whose certificates are in order."""
    assert cloud.run("virt_pki.renew").code == 0


def keyed(cloud, whose, ca, names, to="/tmp/sv-use"):
    """Lay a key, its certificate and the CA of a use down on hyper1 as a client looks for them."""
    cert, key = KEYS.get(whose, KEYS["libvirt"])
    cloud.sh("hyper1", MINE.format(to=to, ca=ca, cert=cert, key=key, **names))
    if whose == "minion":
        cloud.sh("hyper1", f"({MINIONS.format(to=to, **names)}) 2>/dev/null")
    return to


@pytest.mark.parametrize("whose", ["libvirt", "qemu", "minion"])
def test_libvirts_key_alone_opens_a_libvirtd(cloud, whose):
    folder = keyed(cloud, whose, "CA/cacert.pem", LIBVIRT)

    code, text = reach(cloud, "hyper1", "hyper2", f"?pkipath={folder}")

    cloud.sh("hyper1", f"rm -r {folder}")
    if whose == "libvirt":
        assert (code, text) == (0, "hyper2")
    else:
        assert code != 0, text


@pytest.mark.parametrize("whose", ["libvirt", "qemu"])
def test_libvirts_key_alone_poses_as_a_libvirtd(cloud, whose):
    cert, key = SERVERS[whose]
    code = POSER.format(cert=cert, key=key, port=PORT)
    argv = ["timeout", "20", "python3", "-c", code]
    entered = node.enter(cloud.pids["hyper2"], argv)
    with subprocess.Popen(entered, stdout=subprocess.PIPE, text=True) as posing:
        assert posing.stdout.readline() == "listening\n"
        uri = f"qemu+tls://hyper2:{PORT}/system"
        asking = node.enter(cloud.pids["hyper1"], ["timeout", "10", "virsh", "-c", uri, "hostname"])
        asked = subprocess.run(asking, capture_output=True, text=True, check=False)
        said = posing.stdout.readline()

    if whose == "libvirt":
        assert said == "trusted\n", said + asked.stderr
    else:
        assert said.startswith(("refused", "left")), said
        assert "certificate" in asked.stderr


@pytest.fixture
def serving(cloud):
    """A port of QEMU's on hyper2, as a migration has one; its credentials are hyper2's."""
    argv = [
        "qemu-nbd",
        "--object",
        "tls-creds-x509,id=tls,endpoint=server,dir=/etc/pki/qemu,verify-peer=yes",
        "--tls-creds=tls",
        "--shared=9",
        "--persistent",
        f"--port={PORT}",
        "--format=raw",
        "--export-name=x",
        "/tmp/sv-disk",
    ]
    cloud.sh("hyper2", "truncate -s 1M /tmp/sv-disk")
    running = subprocess.Popen(node.enter(cloud.pids["hyper2"], argv))
    wait("QEMU's port", lambda: str(PORT) in cloud.sh("hyper2", f"ss -ltn 'sport = :{PORT}'"))
    yield
    running.kill()
    running.wait()
    cloud.sh("hyper2", "rm /tmp/sv-disk")


@pytest.mark.parametrize("whose", ["qemu", "libvirt", "minion"])
def test_qemus_key_alone_opens_a_port_of_qemu(cloud, serving, whose):
    folder = keyed(cloud, whose, "qemu/ca-cert.pem", QEMU)

    argv = [
        "qemu-img",
        "info",
        "--object",
        f"tls-creds-x509,id=tls,endpoint=client,dir={folder}",
        "--image-opts",
        f"driver=nbd,host=hyper2,port={PORT},export=x,tls-creds=tls",
    ]
    entered = node.enter(cloud.pids["hyper1"], ["timeout", "20", *argv])
    done = subprocess.run(entered, capture_output=True, text=True, check=False)

    cloud.sh("hyper1", f"rm -r {folder}")
    if whose == "qemu":
        assert done.returncode == 0 and "1 MiB" in done.stdout, done.stderr
    else:
        assert done.returncode != 0, done.stdout
