"""What a host on libvirt's test driver says of itself and a VM has the shape that is declared."""

import answershapes
import pytest
from saltvirt.core import wire
from saltvirt.libvirt.domains import counters, snapshots
from saltvirt.vm.show.host import details, inspect

pytestmark = pytest.mark.slow


def wrong(function, answer):
    """Return where an answer does not have the shape of a runner function."""
    return list(answershapes.mismatches(answershapes.RUNNERS[function], wire.plain(answer)))


def test_hosts_and_vms_have_their_shapes(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        info = inspect.host_info(conn, hypervisor.settings)
        (row,) = inspect.rows(conn, "web1")
        shown = inspect.vm_info(conn, "web1")["web1"]
        full = inspect.full_info(conn)
        more = details.describe(conn, row)
        netstats = counters.network(conn, "web1")["web1"]
        none_taken = snapshots.list_snapshots(conn, "web1")["web1"]

    assert wrong("virt.host_info", {"h1": info, "unreachable": ["h2"]}) == []
    assert wrong("virt.query", {"h1": full}) == []
    assert wrong("virt.vm_info", {"h1": {"web1": {**shown, **more}}}) == []
    assert wrong("virt.get_disks", {"h1": {"web1": shown["disks"]}}) == []
    assert wrong("virt.get_nics", {"h1": {"web1": shown["nics"]}}) == []
    assert wrong("virt.get_graphics", {"h1": {"web1": shown["graphics"]}}) == []
    assert wrong("virt.get_loader", {"h1": {"web1": shown["loader"]}}) == []
    assert wrong("virt.vm_netstats", {"h1": {"web1": netstats}}) == []
    # The odd text of the module, for which the runner returns a list.
    assert none_taken == "N/A"
    assert wrong("virt.list_snapshots", {"h1": {"web1": []}}) == []


def test_a_host_of_few_fields_has_the_shape_too(hypervisor):
    with hypervisor.libvirt() as conn:
        info = wire.plain(inspect.host_info(conn, hypervisor.settings))

    assert wrong("virt.host_info", {"h1": {"memory": info["memory"]}}) == []
    assert wrong("virt.host_info", {"h1": {"memory": {**info["memory"], "free_mib": "1"}}}) == [
        "answer.h1.memory.free_mib: str instead of int"
    ]
