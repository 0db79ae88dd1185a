"""Many at once: nobody overcommits a host, nobody gets a name twice."""

import json
import threading

import pytest
from cloudkit import TINY
from movekit import unfetchable

pytestmark = pytest.mark.second


@pytest.fixture(scope="module", autouse=True)
def patience(cloud):
    """Let the runners wait for hosts that they keep busy all at once."""
    conf = cloud.master_conf / "master.d/patience.conf"
    conf.write_text(json.dumps({"virt": {"timeout_s": 90}}))
    yield
    conf.unlink()


def test_of_ten_at_once_exactly_the_eight_that_fit_succeed(clean):
    clean.local("hyper3", "virt.maintenance", "on")
    try:
        limit = clean.local("hyper1", "virt.host_info")["memory"]["limit_mib"]
        quarter = str(limit // 4)
        words = [TINY, "seed=False", "start=False"]
        running = [clean.begin("virt.init", f"c{n}", "1", quarter, *words) for n in range(10)]
        done = [clean.end(process) for process in running]

        good = [d for d in done if d.code == 0]
        bad = [d for d in done if d.code != 0]
        assert (len(good), len(bad)) == (8, 2), [d.out for d in done]
        assert all("no host fits" in d.error for d in bad)
        for host in ("hyper1", "hyper2"):
            info = clean.local(host, "virt.host_info")
            assert len(info["vms"]) == 4
            assert info["memory"]["committed_mib"] <= info["memory"]["limit_mib"]
        for d in good:
            assert clean.run("virt.purge", d.data["name"]).code == 0
    finally:
        clean.local("hyper3", "virt.maintenance", "off")


def test_of_five_at_once_of_one_name_exactly_one_succeeds(clean):
    words = ["virt.init", "same", "1", "64", TINY, "start=False", "wait=False"]
    running = [clean.begin(*words) for _ in range(5)]
    done = [clean.end(process) for process in running]

    assert sorted(d.code for d in done) == [0, 1, 1, 1, 1], [d.out for d in done]
    assert clean.accepted() == ["same"]
    assert clean.run("virt.purge", "same").code == 0


def test_of_five_at_once_on_one_host_exactly_one_succeeds(clean):
    words = ["virt.init", "same", "1", "64", TINY, "seed=False", "start=False"]
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(clean.call("hyper1", *words).code))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(codes)[0] == 0 and sorted(codes)[1] != 0, codes
    assert clean.run("virt.purge", "same").code == 0


@pytest.mark.nightly
def test_two_vms_of_one_image_go_at_once_to_a_host_without_it(clean):
    names, words = ("one", "two"), ("1", "64", TINY, "seed=False", "start=False", "host=hyper1")
    for host in ("hyper1", "hyper2"):
        clean.forget_images(host)
    for name in names:
        assert clean.run("virt.init", name, *words).code == 0
    unfetchable(clean, "hyper1")

    running = [clean.begin("virt.migrate", name, "hyper2") for name in names]
    done = [clean.end(process) for process in running]

    assert [d.code for d in done] == [0, 0], [d.out + d.err for d in done]
    left = clean.sh("hyper2", "ls -A /srv/salt-images/base").split()
    assert sorted(name.rpartition(".")[2] for name in left) == ["json", "qcow2"], left
    clean.forget_images("hyper1")
    for name in names:
        clean.sh("hyper2", f"qemu-img check /srv/salt-images/{name}_system.qcow2")
        assert clean.local("hyper2", "virt.start", name) is True
        assert clean.run("virt.purge", name).code == 0
    clean.forget_images("hyper2")
