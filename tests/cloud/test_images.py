"""The caches of images: what is where, who uses it, and nothing that is used is removed."""

import hashlib

import onrecord
import pytest
from cloudkit import TINY, how_to
from doctorkit import record

pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def pulled(cloud):
    """The lab with the tiny image in all caches; its digest."""
    cloud.purge_all()
    for host in cloud.hosts:
        cloud.forget_images(host)
    done = cloud.run(*next(words for _run, *words in how_to("images.md") if words[1:] == [TINY]))
    assert done.code == 0, done.out
    digest = hashlib.sha256((cloud.lab.images / "tiny.qcow2").read_bytes()).hexdigest()
    assert done.data == dict.fromkeys(cloud.hosts, digest)
    yield cloud, digest
    cloud.purge_all()


def images(cloud):
    """Return what the runner lists."""
    done = cloud.run("virt.images")
    assert done.code == 0, done.out
    return done.data


def test_what_a_vm_is_based_on_is_kept_on_every_host(pulled):
    cloud, digest = pulled
    words = ["t1", "1", "64", TINY, "host=hyper1", "seed=False", "wait=False", "start=False"]
    assert cloud.run("virt.init", *words).code == 0
    listed = images(cloud)
    assert listed["hyper1"][digest]["users"] == ["t1"]
    assert listed["hyper2"][digest]["users"] == []
    assert (listed["hyper2"][digest]["source"], listed["hyper2"][digest]["format"]) == (
        TINY,
        "qcow2",
    )
    text = cloud.command("salt-run", "virt.images").out
    assert digest[:12] in text and "not seen" in text
    # A source is never broken, and stands last.
    assert max(len(line.partition("  salt://")[0]) for line in text.splitlines()) <= 80

    assert cloud.run("virt.image_prune").data == {}

    assert digest in images(cloud)["hyper2"]
    # Its disk, with nobody to whom it belongs, is as good a reason.
    cloud.sh("hyper1", "cp /srv/salt-images/t1_system.qcow2 /srv/salt-images/orphan.qcow2")
    assert cloud.run("virt.purge", "t1").code == 0
    assert images(cloud)["hyper1"][digest]["users"] == ["/srv/salt-images/orphan.qcow2"]
    assert cloud.run("virt.image_prune").data == {}
    cloud.sh("hyper1", "rm /srv/salt-images/orphan.qcow2")


def test_nothing_is_removed_while_a_vm_is_built_or_a_host_is_silent(pulled):
    cloud, digest = pulled
    cloud.sh("hyper2", record("hyper2", "arrival", "other", "preparing", onrecord.arrival()))
    done = cloud.call("hyper2", "virt.image_prune")
    cloud.sh("hyper2", "rm /var/lib/salt-virt/records/arrival/other.json")
    assert done.code != 0 and "other is being built or moved here" in done.out + done.err

    cloud.service("hyper3", "libvirtd", "stop")
    done = cloud.run("virt.image_prune")
    cloud.service("hyper3", "libvirtd", "start")
    assert done.code == 1
    assert (
        "nothing was removed, as not all hosts have answered which images they use: hyper3: "
        in done.error
    )
    assert all(digest in images(cloud)[host] for host in cloud.hosts)


def test_what_nobody_uses_is_removed_and_can_be_had_again(pulled):
    cloud, digest = pulled
    size = (cloud.lab.images / "tiny.qcow2").stat().st_size
    wanted = {host: {digest: size} for host in cloud.hosts}
    assert cloud.run("virt.image_prune", "dry_run=True").data == wanted
    assert digest in images(cloud)["hyper1"]

    assert cloud.run("virt.image_prune").data == wanted

    assert images(cloud) == {host: {} for host in cloud.hosts}
    assert cloud.sh("hyper1", "ls /srv/salt-images/base | grep -v index || true") == ""
    refused = cloud.run("virt.image_pull", "salt://images/no-such.qcow2", "host=hyper1")
    assert refused.code == 1 and refused.error.startswith("hyper1: "), refused.out
    assert cloud.run("virt.image_pull", TINY, "host=hyper1").data == {"hyper1": digest}


def test_a_checksum_is_taken_as_the_file_states_take_it(pulled):
    cloud, digest = pulled
    sums = cloud.fileroot / "SHA256SUMS"
    sums.write_text(f"{'0' * 64}  other.img\n{digest}  tiny.qcow2\n")
    ask = ["virt.image_pull", TINY]
    try:
        good = [
            cloud.call("hyper1", *ask, f"image_hash={said}")
            for said in ("salt://SHA256SUMS", f"sha256={digest}")
        ]
        sums.write_text(f"{'0' * 64}  tiny.qcow2\n")
        bad = [
            cloud.call("hyper1", *ask, f"image_hash={said}")
            for said in ("salt://SHA256SUMS", "salt://images/none", "sha256=xyz")
        ]
    finally:
        sums.unlink()

    assert [done.data["local"] for done in good] == [digest, digest]
    for done, why in zip(
        bad, ("does not match image_hash", "no checksum", "checksum"), strict=True
    ):
        said = " ".join((done.out + done.err).split())
        assert done.code != 0 and why in said and done.traceback == [], said
