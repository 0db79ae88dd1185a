"""A guest gets its identity from systemd, which gets it from QEMU; no disk and no file has it."""

import pytest

IMAGE = "salt://images/debian-minion.qcow2"
pytestmark = [pytest.mark.nightly, pytest.mark.second]


@pytest.fixture(scope="module")
def given(cloud):
    """The answer to the deployment of a VM called cred1, seeded by credentials."""
    cloud.purge_all()
    yield cloud.command(
        "salt-run",
        "virt.init",
        "cred1",
        "2",
        "1024",
        IMAGE,
        "host=hyper1",
        "seed_method=credentials",
    )
    cloud.purge_all()


def test_its_minion_answers_under_its_own_id(cloud, given):
    assert given.code == 0, given.out + given.err
    assert "cred1: Seeding (by credentials)" in given.out
    script = "cat /etc/salt/minion_id; stat -c %a /etc/salt/pki/minion/minion.pem"
    assert cloud.salt("cred1", "cmd.run", script).data["cred1"].split() == ["cred1", "400"]


def test_the_key_is_nowhere_on_the_host(cloud, given):
    assert "credentials" not in cloud.sh("hyper1", "ls /srv/salt-images")
    assert "fwcfg" not in cloud.sh("hyper1", "virsh dumpxml --inactive cred1")
    look = "grep -rlE -e '-BEGIN [A-Z ]*PRIVATE KEY' /var/cache/salt /var/log || true"
    assert cloud.sh("hyper1", look) == ""


def test_it_does_not_move_before_it_was_started_once_more(cloud, given):
    done = cloud.run("virt.migrate", "cred1", "hyper2", "dry_run=True")

    assert done.code == 1 and "seeded by credentials" in done.error, done.out


def test_a_refused_start_leaves_no_credential(cloud, given):
    before = cloud.traces()

    done = cloud.call(
        "hyper1", "virt.init", "cred2", "1", "512", IMAGE, "seed_method=credentials", "start=False"
    )

    assert done.code != 0 and "leave out start=False" in done.out + done.err
    assert cloud.traces() == before
