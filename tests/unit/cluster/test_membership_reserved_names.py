"""A VM never has a hypervisor's name, and a hypervisor's key is never taken for a VM's."""

import fleetkit
import pytest
from saltvirt.cluster import membership, minionkeys
from saltvirt.core.errors import BadArgument

NAMES = ["hyper9", "HYPER9", "hyper1"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("image", ["salt://a.qcow2", None], ids=["seeded", "unseeded"])
def test_a_vm_with_a_hypervisors_name_is_not_deployed(cloud, name, image):
    key_before = fleetkit.key(cloud, name)

    for work in (cloud.dry_run, lambda name: cloud.init(name, image=image, force=True)):
        with pytest.raises(BadArgument, match=f"a VM cannot be called '{name}'"):
            work(name)

    assert cloud.hosts.sent == [] and fleetkit.is_tidy(cloud)
    assert fleetkit.key(cloud, name) == key_before


def test_a_vm_with_the_name_of_an_allowed_host_is_not_deployed(cloud):
    membership.allow(cloud.opts, ["db1"])

    with pytest.raises(BadArgument, match="it is the name of the hypervisor db1"):
        cloud.init("DB1")

    cloud.init("db2")
    assert cloud.hosts.where("db2")


def test_a_hypervisors_key_is_never_deleted_as_a_vms(cloud):
    cloud.hosts.put("hyper2", "hyper1")  # by hand
    key_before = fleetkit.key(cloud, "hyper1")

    with pytest.raises(BadArgument, match="salt HOST virt.purge hyper1"):
        cloud.purge("hyper1")

    assert fleetkit.key(cloud, "hyper1") == key_before is not None


def test_a_vm_that_a_glob_matches_can_be_removed_once_it_is_shut_out(cloud):
    cloud.hosts.put("hyper2", "hyper9")
    minionkeys.accept(cloud.opts, "hyper9", "its key")
    with pytest.raises(BadArgument):
        cloud.purge("hyper9")
    membership.disallow(cloud.opts, ["hyper9"])

    cloud.purge("hyper9")

    assert cloud.hosts.where("hyper9") == [] and fleetkit.key(cloud, "hyper9") is None
