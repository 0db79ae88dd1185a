"""A hypervisor makes a VM by itself: its key is accepted if authorized; cloud-init is told more."""

import json

import pytest
from cloudkit import wait

pytestmark = pytest.mark.second
USER_DATA = {
    "write_files": [{"path": "/etc/told", "content": "by the user"}],
    "bootcmd": [["sh", "-c", "echo by the boot > /etc/booted"]],
}
INTERFACES = [{"name": "eth0", "guest": {"addresses": ["10.77.9.9/16"], "gateway": "10.77.0.1"}}]


@pytest.fixture(scope="module")
def own(cloud):
    """The lab, and a VM that hyper1 was authorized to make a key for; what virt.init answered."""
    cloud.purge_all()
    assert cloud.run("virt.authorize", "own1", "hyper1").code == 0
    done = cloud.call(
        "hyper1",
        "virt.init",
        "own1",
        "2",
        "1024",
        "salt://images/debian-minion.qcow2",
        "seed_method=nocloud",
        f"user_data={json.dumps(USER_DATA)}",
        f"interfaces={json.dumps(INTERFACES)}",
    )
    yield done
    cloud.purge_all()


def test_its_minion_answers_with_the_key_that_the_host_submitted(cloud, own):
    assert own.code == 0, own.out + own.err
    assert "own1" in cloud.accepted()
    wait("its minion", lambda: cloud.answers("own1"), timeout_s=300)
    assert cloud.sh("hyper1", "ls -A /var/lib/salt-virt/tokens") == ""


def test_cloud_init_did_what_it_was_told(cloud, own):
    script = "cat /etc/told /etc/booted; ip -br address show eth0"

    said = cloud.salt("own1", "cmd.run", script).data["own1"]

    assert "by the user" in said and "by the boot" in said
    assert "10.77.9.9/16" in said


def test_a_key_is_submitted_once_and_only_if_authorized(cloud, own):
    words = ["seed.mkconfig", "tmp=/srv/seed", "id_=web7"]
    try:
        made = cloud.local("hyper1", *words)  # not authorized
        assert "web7" not in cloud.accepted()
        assert cloud.sh("hyper1", f"stat -c %a {made['privkey']}").strip() == "600"
        assert cloud.run("virt.authorize", "web7", "hyper1").code == 0
        cloud.local("hyper2", *words)  # another host
        assert "web7" not in cloud.accepted()
        cloud.local("hyper1", *words)
        assert "web7" in cloud.accepted()
        refused = cloud.run("virt.authorize", "web7", "hyper2")
        assert refused.code == 1 and "is accepted on this master already" in refused.error
    finally:
        for host in ("hyper1", "hyper2"):
            cloud.sh(host, "rm -rf /srv/seed")


def test_a_late_submission_is_refused_and_leaves_no_vm(cloud, own):
    before = cloud.traces()
    assert cloud.run("virt.authorize", "late1", "hyper1").code == 0
    cache = cloud.folder("master") / "var/cache/salt/master"
    (note,) = (cache / "salt-virt-authorised").glob("late1.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "until": 1}))

    done = cloud.call(
        "hyper1", "virt.init", "late1", "1", "96", "salt://images/tiny.qcow2", "seed_method=nocloud"
    )

    assert done.code != 0 and "too late" in done.out + done.err, done.out + done.err
    assert cloud.traces() == before


def test_a_token_from_nowhere_is_refused(cloud, own):
    done = cloud.call("hyper1", "virt.authorized", "web8", "no-token")

    assert done.code != 0 and "it comes from salt-run virt.authorize" in done.out + done.err


def test_an_authorization_that_is_revoked_leaves_nothing(cloud, own):
    before = cloud.traces()
    assert cloud.run("virt.authorize", "web9", "hyper1").code == 0
    tokens = "ls -A /var/lib/salt-virt/tokens"
    assert cloud.sh("hyper1", tokens) == "web9\n"

    assert cloud.run("virt.unauthorize", "web9").code == 0

    assert cloud.sh("hyper1", tokens) == ""
    assert cloud.traces() == before
