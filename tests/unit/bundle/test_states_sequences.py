"""Random sequences of states: test=True foresees each, and a second run changes nothing."""

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
# Hypothesis' phase "explain" takes minutes.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


class Driver(stateside.Side):
    """libvirt's test driver, with its differences from QEMU's."""

    def reset(self):
        """Remove all but the folders of pools, which the driver does not create."""
        super().reset()
        for name in statesequences.POOLS:
            (self.folder / name).mkdir()

    def is_waiting(self, state, options):
        """Return also whether a network runs: the driver hides its definition of the next start."""
        if state.startswith("network_"):
            return bool(self.conn.networkLookupByName(options["name"]).isActive())
        return super().is_waiting(state, options)


@pytest.fixture
def side(tmp_path, monkeypatch):
    """The test driver and the states on it; facts that the driver lacks are fakes."""
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
    modules = [asloaded.module(f"_states/virt_{name}.py") for name in FILES]
    functions = {}
    for module in modules:
        module.__opts__.update(virt={"connection": {"uri": uri}, **options}, file_client="local")
        functions |= {name: work for name, work in vars(module).items() if callable(work)}

    def say_test(is_test):
        for module in modules:
            module.__opts__["test"] = is_test

    with connect.open_connection(HostSettings(uri=uri), readonly=False) as conn:
        driver = Driver(conn, tmp_path / "world", functions, say_test)
        yield driver
        driver.reset()
    # Hypothesis keeps a failure's objects, and the connection among them would stay open.
    del driver, conn
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
