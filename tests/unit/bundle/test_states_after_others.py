"""With test=True a state may lack what earlier states would create: that is no failure."""

import asloaded
import pytest

URI = "test:///default"
VM = {"cpu": 1, "mem": 64, "seed": False, "disks": []}
ON_A_NETWORK = {**VM, "interfaces": [{"name": "eth0", "type": "network", "source": "lan"}]}
ON_A_BRIDGE = {**VM, "interfaces": [{"name": "eth0", "type": "bridge", "source": "br77"}]}
NOT_YET = [
    ("defined", "running", ("web1",), {}, "there is no VM 'web1' on this host"),
    ("defined", "running", ("web1",), ON_A_NETWORK, "no active network lan there"),
    ("defined", "running", ("web1",), ON_A_BRIDGE, "no bridge br77 there"),
    (
        "defined",
        "running",
        ("web1",),
        {**VM, "boot": {"kernel": "/srv/no-kernel"}},
        "boot:kernel: there is no file /srv/no-kernel on this host",
    ),
    (
        "defined",
        "running",
        ("web1",),
        {**VM, "image": "/srv/no-image.qcow2", "disks": [{"name": "system"}]},
        "no-image.qcow2",
    ),
    (
        "defined",
        "running",
        ("web1",),
        {**VM, "disks": [{"name": "data", "source_file": "/srv/no.raw"}]},
        "there is no file /srv/no.raw",
    ),
    (
        "defined",
        "defined",
        ("web1",),
        {**VM, "disks": [{"name": "data", "size": 8, "pool": "vms"}]},
        "vms",
    ),
    ("power", "stopped", ("web1",), {}, "no VM's name matches 'web1'"),
    ("snapshot", "snapshot", ("web1",), {}, "no VM's name matches 'web1'"),
    ("snapshot", "reverted", ("web1",), {"snapshot": "x"}, "no VM's name matches 'web1'"),
    ("volume", "volume_defined", ("vms", "data"), {"size": 8}, "no storage pool"),
]
# These are wrong with any earlier states.
WRONG = [
    ("defined", "defined", ("web1",), {**VM, "mem": "much"}, "mem"),
    (
        "defined",
        "defined",
        ("web1",),
        {**VM, "disks": [{"name": "../x", "size": 1}]},
        "use letters",
    ),
    ("power", "stopped", ("web1",), {"conection": "x"}, "conection"),
]
RUNS = {"network_|-lan_|-lan_|-running": {"result": None, "changes": {"lan": "defined"}}}
IDLE = {"network_|-lan_|-lan_|-running": {"result": True, "changes": {}}}


@pytest.fixture
def apply(hypervisor, monkeypatch):
    """Return a function that applies a state after others, as Salt does."""
    options = {
        "images": hypervisor.settings.images,
        "state_dir": hypervisor.settings.state_dir,
        "connection": {"uri": URI},
        "nic": {"default": []},
        "reserve_mib": 0,
        "disk_reserve_mib": 0,
    }
    with hypervisor.libvirt():

        def apply(kind, function, place, state_options, earlier_results, is_test=True):
            states = asloaded.module(f"_states/virt_{kind}.py")
            states.__opts__.update(virt=options, file_client="local", test=is_test)
            state = getattr(states, function)
            # Salt sets it for the time of the call; test_loading.py lets Salt itself do it.
            monkeypatch.setitem(state.__globals__, "__running__", earlier_results)
            return state(*place, **state_options)

        yield apply


@pytest.mark.parametrize(("kind", "function", "place", "options", "reason"), NOT_YET)
def test_a_state_with_test_cannot_know_what_earlier_states_will_create(
    apply, kind, function, place, options, reason
):
    answer = apply(kind, function, place, options, RUNS)

    assert (answer["result"], answer["changes"]) == (None, {}), answer
    assert answer["comment"].startswith("not known before the states above are done; now it would")
    assert reason in answer["comment"]


@pytest.mark.parametrize(("kind", "function", "place", "options", "reason"), NOT_YET)
@pytest.mark.parametrize("earlier_results", [{}, IDLE, None])
def test_a_state_fails_if_no_earlier_state_would_change_anything(
    apply, kind, function, place, options, reason, earlier_results
):
    for is_test in (True, False):
        answer = apply(kind, function, place, options, earlier_results, is_test)

        assert (answer["result"], answer["changes"]) == (False, {})
        assert reason in answer["comment"]


@pytest.mark.parametrize(("kind", "function", "place", "options", "reason"), NOT_YET[:3])
def test_the_real_run_fails_after_any_answer_of_a_dry_run(
    apply, kind, function, place, options, reason
):
    assert apply(kind, function, place, options, RUNS, is_test=False)["result"] is False


@pytest.mark.parametrize(("kind", "function", "place", "options", "reason"), WRONG)
def test_a_wrong_argument_fails_after_any_state(apply, kind, function, place, options, reason):
    answer = apply(kind, function, place, options, RUNS)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert reason in answer["comment"]
