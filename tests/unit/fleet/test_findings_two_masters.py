"""Finding: a purge that one master left in a host's queue, and a VM that another has made since."""

import contextlib
from dataclasses import replace

from saltvirt.errors import VirtError
from saltvirt.fleet import deploy, purge


def test_a_late_purge_of_one_master_removes_no_vm_that_another_has_made_since(cloud, tmp_path):
    cloud.init(host="hyper1")
    # The first master is killed while this waits in the host's queue, so nobody refuses it.
    cloud.hosts.is_queueing("virt.purge")
    with contextlib.suppress(VirtError):
        cloud.purge()
    cloud.hosts.queues = None
    second = replace(cloud.master, opts={**cloud.opts, "cachedir": str(tmp_path / "second")})
    purge.purge(second, "web", True)
    request = deploy.Request(name="web", cpu=1, mem=1, given={"image": "salt://a"}, host="hyper1")
    deploy.deploy(second, request, wait=False)

    with contextlib.suppress(VirtError):
        cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper1"]
