"""What commands report about the VMs of a host that is shut out, or of the only host."""

import pytest
from playedhosts import clouds
from saltvirt.certificates.master import allowing
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.errors import MasterError, NoHostFits
from saltvirt.migration.master import migrate
from test_allowing import master, notices, now, secured
from test_output import outputter

__all__ = ["master", "notices", "secured"]


def test_the_vms_of_a_host_that_is_shut_out_are_named(secured, notices):
    lastseen.refresh(
        secured,
        lastseen.ReportedNames(names_by_host={"hyper3": ["web1", "db1"], "hyper1": ["mail"]}),
    )

    answer = allowing.revoke(secured, "hyper3", now(), force=True)
    assert answer["last_seen"] == {"hyper3": ["db1", "web1"]}
    notices.silent = "hyper1"
    with pytest.raises(MasterError) as caught:
        allowing.disallow(secured, ["hyper3"], now(), force=True)
    assert caught.value.table["last_seen"] == {"hyper3": ["db1", "web1"]}


def test_a_vm_of_the_only_hypervisor_cannot_move(monkeypatch, opts):
    settings = clouds(monkeypatch)(1)
    settings.put("web", "h1")
    minionkeys.accept(opts, "h1", "a key")
    cloud = Cloud(opts=opts, settings=settings, progress=lambda *_args, **_figures: None)

    for move in (migrate.dry_run, migrate.migrate):
        with pytest.raises(NoHostFits, match=r"MiB\): there is no other hypervisor$"):
            move(cloud, "web", None, {})


@pytest.mark.parametrize("name", ["virt_hosts", "virt_query"])
def test_the_vms_of_a_silent_host_are_shown_as_they_were_last_seen(name):
    data = {"unreachable": ["hyper9"], "last_seen": {"hyper9": ["db1", "web1"]}}

    text = " ".join(outputter(name)(data).split())

    assert text.endswith("had db1, web1 when it was last asked")
    assert "does not answer" in text
