"""What is said of the VMs of a host that is shut out, or that is the only one."""

import pytest
from playedhosts import clouds
from saltvirt.certificates.master import allowing
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.errors import MasterError, NoHostFits
from saltvirt.migration.master import migrate
from test_allowing import master, now, secured, told
from test_output import outputter

__all__ = ["master", "secured", "told"]


def test_the_vms_of_a_host_that_is_shut_out_are_named(secured, told):
    lastseen.refresh(
        secured,
        lastseen.ReportedNames(names_by_host={"hyper3": ["web1", "db1"], "hyper1": ["mail"]}),
    )

    done = allowing.revoke(secured, "hyper3", now(), force=True)
    assert done["last_seen"] == {"hyper3": ["db1", "web1"]}
    told.silent = "hyper1"
    with pytest.raises(MasterError) as caught:
        allowing.disallow(secured, ["hyper3"], now(), force=True)
    assert caught.value.table["last_seen"] == {"hyper3": ["db1", "web1"]}


def test_a_vm_of_the_only_hypervisor_can_go_nowhere(monkeypatch, opts):
    one = clouds(monkeypatch)(1)
    one.put("web", "h1")
    minionkeys.accept(opts, "h1", "a key")
    cloud = Cloud(opts=opts, settings=one, progress=lambda *_args, **_figures: None)

    for move in (migrate.dry_run, migrate.migrate):
        with pytest.raises(NoHostFits, match=r"MiB\): there is no other hypervisor$"):
            move(cloud, "web", None, {})


@pytest.mark.parametrize("name", ["virt_hosts", "virt_query"])
def test_the_vms_of_a_silent_host_are_shown_as_they_were_last_seen(name):
    data = {"unreachable": ["hyper9"], "last_seen": {"hyper9": ["db1", "web1"]}}

    shown = " ".join(outputter(name)(data).split())

    assert shown.endswith("had db1, web1 when it was last asked")
    assert "does not answer" in shown
