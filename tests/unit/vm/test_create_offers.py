"""What hosts are asked for a new VM: few bytes, of some of many first, and nothing is missed."""

from dataclasses import replace

import fleetkit
import pytest
import told
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import NameTaken, NoHostFits, ReservationRefused
from saltvirt.core.options import config
from saltvirt.placement.brief import rank
from saltvirt.vm.create.master import deploy

FACTS, WHOLE = "virt.placement_facts", "virt.host_info"
COUNT, SAMPLE = 12, 4


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Twelve hosts, of which four are a sample; ``asked`` has ``(function, {host: answer})``."""
    made = fleetkit.cloud(monkeypatch, opts, tmp_path, count=COUNT)
    made.master = replace(made.master, settings=replace(fleetkit.SETTINGS, sample_hosts=SAMPLE))
    made.asked, usual = [], made.hosts.ask

    def ask(cloud_, targets, fun, arg=(), kwarg=None, **options):
        replies = usual(cloud_, targets, fun, arg, kwarg, **options)
        made.asked.append((fun, {host: reply.value for host, reply in replies.items()}))
        return replies

    monkeypatch.setattr(minions, "ask", ask)
    return made


def shown(cloud, *args, **given):
    """Return the table of a dry run."""
    cloud.asked.clear()
    return deploy.dry_run(cloud.master, fleetkit.request(*args, wait=True, **given))


def sample(cloud, name="web"):
    """Return the hosts that are looked at first for a name."""
    return set(sorted(cloud.hosts.names(), key=lambda host: rank(name, host))[:SAMPLE])


def offering(answers):
    """Return the hosts that said more than names."""
    return {host for host, said in answers.items() if "offer" in said}


def known(cloud, **names):
    """Have the hosts asked once, as any command before would have done."""
    inventory.overview(cloud.master, WHOLE)
    cloud.asked.clear()


def test_all_are_asked_for_the_name_and_a_sample_for_what_it_offers(cloud):
    cloud.hosts.put("hyper3", "db")
    known(cloud)

    table = shown(cloud)

    ((fun, answers),) = cloud.asked
    assert fun == FACTS
    assert set(answers) == set(cloud.hosts.names())
    assert offering(answers) == set(table) == sample(cloud)
    assert all("listed" not in said["names"] for said in answers.values())
    assert shown(cloud) == table
    assert set(shown(cloud, "other")) == sample(cloud, "other") != sample(cloud)


def test_a_name_on_a_host_beyond_the_sample_is_found_though_nobody_knew_it(cloud):
    cloud.hosts.put("hyper3", "db")
    known(cloud)
    host = next(one for one in cloud.hosts.names() if one not in {"hyper3", *sample(cloud)})
    cloud.hosts.put(host, "web", state="paused")

    with pytest.raises(NameTaken, match=rf"'web' is on {host} already \(paused\)"):
        shown(cloud)

    assert [fun for fun, _answers in cloud.asked] == [FACTS, FACTS, WHOLE]
    assert [set(answers) for _fun, answers in cloud.asked[1:]] == [{host}, {host}]
    assert lastseen.read_all(cloud.opts) == {"hyper3": ["db"], host: ["web"]}


@pytest.mark.parametrize("left", [{"building": True}, {"unfinished": True}, {"unreadable": "why"}])
def test_a_trace_of_the_name_beyond_the_sample_counts_too(cloud, left):
    host = next(one for one in cloud.hosts.names() if one not in sample(cloud))
    cloud.hosts.put(host, "web", state=None, **left)

    if "unfinished" in left:
        assert shown(cloud)
    else:
        with pytest.raises(NameTaken, match=host):
            shown(cloud)
    assert cloud.asked[-1][0] == WHOLE


def test_the_hints_are_what_whole_answers_make_them(cloud):
    cloud.hosts.put("hyper3", "db")
    cloud.hosts.put("hyper4", "old")
    known(cloud)
    cloud.hosts.put("hyper4", "new")
    (cloud.hosts.folder / "hyper4/old").unlink()
    cloud.hosts.silence("hyper3")
    cloud.hosts.put("hyper5", "db")  # hyper3 is silent, and may have its own still

    shown(cloud)

    assert lastseen.read_all(cloud.opts) == {"hyper3": ["db"], "hyper4": ["new"], "hyper5": ["db"]}


def test_a_silent_host_that_had_the_name_keeps_it_from_others(cloud):
    cloud.hosts.put("hyper3", "web")
    known(cloud)
    cloud.hosts.silence("hyper3")

    with pytest.raises(NameTaken, match="may be on hyper3"):
        shown(cloud)


def test_all_are_asked_before_it_is_refused(cloud, monkeypatch):
    known(cloud)
    first, usual = sample(cloud), cloud.hosts._info

    def info(vms):
        return told.wire.plain(told.but(told.info(usual(vms)), maintenance=True))

    monkeypatch.setattr(cloud.hosts, "_info", info)
    with pytest.raises(NoHostFits) as dry:
        shown(cloud)

    assert set(dry.value.table["hosts"]) == set(cloud.hosts.names())
    assert [len(offering(answers)) for _fun, answers in cloud.asked] == [SAMPLE, COUNT]
    assert first == offering(cloud.asked[0][1])
    with pytest.raises(NoHostFits) as caught:
        deploy.deploy(cloud.master, fleetkit.request())
    assert set(caught.value.table["hosts"]) == set(cloud.hosts.names())
    assert fleetkit.is_tidy(cloud)


def test_where_all_of_the_sample_refuse_the_others_are_tried(cloud):
    first, usual = sample(cloud), cloud.hosts.build

    def build(host, name, *args, **kwarg):
        if host in first:
            raise ReservationRefused(name, ["no room"])
        usual(host, name, *args, **kwarg)

    cloud.hosts.does["virt.init"] = build

    done = deploy.deploy(cloud.master, fleetkit.request(image="salt://a.qcow2"))

    assert done["host"] not in first
    assert cloud.hosts.where("web") == [done["host"]]
    assert fleetkit.key(cloud)
    assert fleetkit.is_tidy(cloud)


@pytest.mark.parametrize(
    "given",
    [
        {"affinity": "db"},
        {"anti_affinity": "db@rack"},
        {"spread_over": "rack"},
        {"placement": "pack"},
    ],
)
def test_what_looks_at_all_hosts_asks_them_all(cloud, given):
    assert len(shown(cloud, **given)) == COUNT


def test_headroom_asks_for_the_size_of_each_vm(cloud):
    assert len(shown(cloud, headroom=True)) == COUNT
    assert [fun for fun, _answers in cloud.asked] == [WHOLE]


def test_a_host_that_is_named_is_asked_alone_for_what_it_offers(cloud):
    known(cloud)

    table = shown(cloud, host="hyper7")

    assert offering(cloud.asked[0][1]) == {"hyper7"}
    assert table["hyper7"]["fits"]
    assert table["hyper1"]["reasons"] == ["not the host asked for (hyper7)"]
    assert len(table) == COUNT


def test_nothing_is_sampled_where_the_option_says_so(cloud):
    cloud.master = replace(cloud.master, settings=replace(fleetkit.SETTINGS, sample_hosts=0))

    assert len(shown(cloud)) == COUNT
    assert config.master_settings({}).sample_hosts == 100
