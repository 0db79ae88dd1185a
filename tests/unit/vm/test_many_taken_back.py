"""All or nothing: hosts take back what they have built, and only that."""

import pytest
from saltvirt.cluster.rpc import minions
from saltvirt.vm.create.master.many.manyrequest import NotAllBuilt
from test_many_run import built, failing


@pytest.mark.parametrize("notes", [True, False])
def test_all_or_nothing_has_hosts_take_back_what_they_made_alone(cloud, notes):
    cloud.hosts.notes_made = notes
    failing(cloud, "web3")

    with pytest.raises(NotAllBuilt):
        built(cloud, count=3, whole=True)
    built(cloud, count=1, pattern="db{}")
    cloud.purge("db1")

    sent = [kwarg for _host, fun, kwarg in cloud.hosts.sent if fun == "virt.purge"]
    *taken_back, purged = [kwarg.get("only_made", False) for kwarg in sent]
    assert taken_back == [notes] * len(taken_back) and taken_back and not purged
    made = [kwarg["report"] for _host, fun, kwarg in cloud.hosts.sent if fun == "virt.init"]
    assert ["undoable" in report for report in made] == [True] * (len(made) - 1) + [False]


def test_a_purge_that_goes_on_after_an_interrupted_taking_back_removes_no_more(cloud):
    failing(cloud, "web2")
    cloud.hosts.is_queueing("virt.purge")
    with pytest.raises(NotAllBuilt, match="virt.purge web1 again, which goes on"):
        built(cloud, count=2, whole=True, per_host=1)
    cloud.hosts.queues = None

    cloud.purge("web1")

    sent = [kwarg for _host, fun, kwarg in cloud.hosts.sent if fun == "virt.purge"]
    assert [kwarg.get("only_made") for kwarg in sent] == [True, True]


def test_what_a_host_cannot_say_that_it_made_stays(cloud, monkeypatch):
    failing(cloud, "web3")
    usual = minions.ask

    def ask(cloud_, targets, fun, *args, **options):
        replies = usual(cloud_, targets, fun, *args, **options)
        if fun == "virt.presence":
            why = "libvirt does not answer"
            replies = {host: minions.Reply(minion=host, error=why) for host in replies}
        return replies

    monkeypatch.setattr(minions, "ask", ask)
    with pytest.raises(NotAllBuilt) as caught:
        built(cloud, count=3, whole=True)

    left = caught.value.table["left"]
    assert set(left) == {"web1", "web2"} - set(caught.value.table["failed"])
    assert all("cannot be asked what it has of VM" in why for why in left.values())
    assert all(cloud.hosts.where(name) for name in left)
