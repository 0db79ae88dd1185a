"""Whom libvirtd does not let do it is told so in its words, and nothing is changed."""

import json

import pytest

pytestmark = [pytest.mark.second_nightly]
# libvirtd takes nothing but questions on this one.
READING = "qemu:///system?socket=/run/libvirt/libvirt-sock-ro"
WORDS = "operation forbidden: "
ADDRESS = {"cidr": "192.168.77.0/24"}
FUNCTIONS = [
    ("stop", "t1"),
    ("setmem", "t1", "64", "config=True"),
    ("update", "t1", "mem=64"),
    ("purge", "t1"),
    ("undefine", "t1"),
    ("snapshot", "t1"),
    ("set_autostart", "t1"),
    ("define_xml_str", "<domain type='qemu'><name>d</name><memory>65536</memory></domain>"),
    ("init", "new", "1", "64", "nic=None", "disk=None", "seed=False"),
    ("network_define", "lan", "virbr7", "nat", f"ipv4_config={json.dumps(ADDRESS)}"),
    ("pool_define", "p1", "dir", "target=/srv/p1"),
]
STATES = [
    ("stopped", "t1", {}),
    ("powered_off", "t*", {}),
    ("unpowered", "t1", {}),
    ("rebooted", "t1", {}),
    ("snapshot", "t1", {}),
    ("saved", "t1", {}),
    ("running", "t1", {"mem": 64}),
    ("defined", "new", {"cpu": 1, "mem": 64, "seed": False}),
    ("absent", "t1", {}),
    ("network_running", "lan", {"bridge": "virbr7", "forward": "nat", "ipv4_config": ADDRESS}),
    ("pool_running", "p1", {"ptype": "dir", "target": "/srv/p1"}),
]
# A minion that is not root, as it is asked by hand.
CONFIG = "/tmp/denied"
AS_NOBODY = (
    "setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp "
    f"salt-call --local -c {CONFIG} --out=json --retcode-passthrough"
)


@pytest.fixture(scope="module")
def running(cloud):
    """A running VM ``t1``, which is as it was in the end."""
    cloud.purge_all()
    init = ("virt.init", "t1", "1", "96", "salt://images/tiny.qcow2", "seed=False")
    assert cloud.local("hyper1", *init) is True
    before = seen(cloud)
    yield cloud
    try:
        assert seen(cloud) == before
    finally:
        cloud.purge_all()


def seen(cloud):
    """Return what there is on the host."""
    return cloud.sh(
        "hyper1",
        "virsh dumpxml t1; virsh dumpxml --inactive t1; virsh list --all; virsh net-list --all; "
        "virsh pool-list --all; virsh snapshot-list t1; ls /srv /srv/salt-images",
    )


@pytest.mark.parametrize("words", FUNCTIONS, ids=lambda words: words[0])
def test_a_function_fails_with_one_line(running, words):
    function, *given = words

    done = running.call("hyper1", f"virt.{function}", *given, f"connection={READING}")

    assert done.code == 1 and done.traceback == [], done.out + done.err
    assert WORDS in done.out + done.err


@pytest.mark.parametrize(("state", "name", "given"), STATES, ids=[one[0] for one in STATES])
def test_a_state_is_false_with_libvirts_words(running, state, name, given):
    words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    words.append(f"connection={READING}")

    done = running.call("hyper1", "state.single", f"virt.{state}", name, *words)

    (said,) = done.data["local"].values()
    assert said["result"] is False and WORDS in said["comment"] + str(said["changes"]), said
    assert done.traceback == []


def test_what_only_looks_works_there(running):
    vms = running.local("hyper1", "virt.vm_state", f"connection={READING}")

    assert vms == {"t1": "running"}


def test_a_minion_that_is_not_root_is_told_whom_libvirt_does_not_let_in(running):
    running.sh(
        "hyper1",
        f"mkdir -p {CONFIG}/ext; cp -r /var/cache/salt/minion/extmods {CONFIG}/ext/modules-all; "
        f"echo '{json.dumps(minion())}' >{CONFIG}/minion; chown -R nobody {CONFIG}",
    )
    try:
        # Everybody may ask.
        assert "t1" in running.sh("hyper1", f"{AS_NOBODY} virt.list_domains")
        for words in ("virt.start t1", "state.single virt.running t1", "virt.purge t1"):
            said = running.sh("hyper1", f"{AS_NOBODY} {words} 2>&1 || true")

            # By the mode of its socket, or by polkit.
            assert "libvirt does not let user 'nobody' in" in said, said
            assert "Traceback" not in said, said
    finally:
        running.sh("hyper1", f"rm -rf {CONFIG}")


def minion():
    """Return the configuration of that minion: all that it writes is in its folder."""
    folders = {key: f"{CONFIG}/{key}" for key in ("pki_dir", "cachedir", "sock_dir")}
    return {
        "id": "nobody",
        "user": "nobody",
        "root_dir": CONFIG,
        **folders,
        "log_file": f"{CONFIG}/log",
        "extension_modules": f"{CONFIG}/ext/modules-all",
        "virt": {"state_dir": f"{CONFIG}/state"},
    }
