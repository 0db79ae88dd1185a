"""Whatever states come one after the other: test=True foresees each, and a second run is idle."""

import gc

import asloaded
import pytest
import statesequences
import stateside
from hypothesis import HealthCheck, Phase, given, settings
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import query
from saltvirt.placement.answers import DomainTypes
from saltvirt.vm.show.host import inspect

FILES = ("defined", "power", "snapshot", "absent", "networks", "pool", "volume")
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
# To explain a failure takes minutes.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


class Driver(stateside.Side):
    """The test driver, as far as it is none of QEMU's."""

    def reset(self):
        """Have nothing there but the folders of pools, which it does not make."""
        super().reset()
        for name in statesequences.POOLS:
            (self.folder / name).mkdir()

    def is_waiting(self, state, given):
        """Return also whether a network runs: what it will be at its next start is not told."""
        if state.startswith("network_"):
            return bool(self.conn.networkLookupByName(given["name"]).isActive())
        return super().is_waiting(state, given)


@pytest.fixture
def side(tmp_path, monkeypatch):
    """The test driver, which has no answer for some of what is asked, and the states on it."""
    types = DomainTypes(default="test", usable=["test"], why="")
    monkeypatch.setattr(inspect, "domain_types", lambda *_: types)
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 16384, "cpus": 8})
    monkeypatch.setattr(inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    options = {
        "images": str(tmp_path / "world/images"),
        "state_dir": str(tmp_path / "state"),
        "nic": {"default": []},
        "capacity": {"disk_mib": 10**6},
        "console_log": False,
    }
    uri = "test:///default"
    loaded = [asloaded.module(f"_states/virt_{name}.py") for name in FILES]
    functions = {}
    for one in loaded:
        one.__opts__.update(virt={"connection": {"uri": uri}, **options}, file_client="local")
        functions |= {name: work for name, work in vars(one).items() if callable(work)}

    def say_test(is_test):
        for one in loaded:
            one.__opts__["test"] = is_test

    with connect.open_connection(HostSettings(uri=uri), readonly=False) as conn:
        made = Driver(conn, tmp_path / "world", functions, say_test)
        yield made
        made.reset()
    # Hypothesis has what failed, and with it the connection, which would stay open.
    del made, conn
    gc.collect()


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=QUIET, phases=PHASES)
@given(steps=statesequences.sequences(3, 12))
def test_states_in_any_order_keep_their_contract(side, steps):
    statesequences.keeps(side, steps)


@pytest.mark.nightly
@settings(max_examples=400, suppress_health_check=QUIET, phases=PHASES)
@given(steps=statesequences.sequences(5, 25))
def test_many_states_in_any_order_keep_their_contract(side, steps):
    statesequences.keeps(side, steps)
