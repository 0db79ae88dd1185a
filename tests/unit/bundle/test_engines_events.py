"""The engine itself: where its events go, and what it does with a wrong option."""

import importlib.util
import logging
from pathlib import Path

import pytest
import salt.utils.event
from saltvirt.libvirt import events

FILE = Path(__file__).resolve().parents[3] / "_engines/libvirt_events.py"


@pytest.fixture
def engine(monkeypatch):
    """The engine; its watch is a fake that ends after one event."""
    spec = importlib.util.spec_from_file_location("saltvirt_engine", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def watch(uri, kinds, prefix, send):
        module.watched = (uri, [kind.name for kind in kinds], prefix)
        send("the/tag", {"event": "started"})

    monkeypatch.setattr(events, "watch", watch)
    return module


def test_a_minions_engine_sends_to_its_master(engine):
    sent = []
    engine.__opts__ = {"__role": "minion"}
    engine.__salt__ = {"event.send": lambda tag, data: sent.append((tag, data))}

    engine.start(uri="test:///default", tag_prefix="pre", filters=["pool"])

    assert sent == [("the/tag", {"event": "started"})]
    assert engine.watched == ("test:///default", ["pool/lifecycle", "pool/refresh"], "pre")


def test_a_masters_engine_fires_on_its_own_bus(engine, monkeypatch):
    # A master's bus is a daemon: this one records the events.
    class Bus:
        fired = []

        def fire_event(self, data, tag):
            self.fired.append((tag, data))

    def bus_of(opts, folder, listen):
        assert (opts["__role"], folder, listen) == ("master", "/run/salt", False)
        return Bus()

    monkeypatch.setattr(salt.utils.event, "get_master_event", bus_of)
    engine.__opts__ = {"__role": "master", "sock_dir": "/run/salt"}

    engine.start()

    assert Bus.fired == [("the/tag", {"event": "started"})]
    uri, kinds, prefix = engine.watched
    assert (uri, len(kinds), prefix) == (None, 32, "salt/engines/libvirt_events")


SLIPS = {
    "filters": (["domian"], "filters: ['domian']; expected a list of 'all', domain, network"),
    "uri": (5, "uri: 5 is not text"),
    "tag_prefix": (["a"], "tag_prefix: ['a'] is not text"),
}


@pytest.mark.parametrize("option", SLIPS)
def test_a_wrong_option_is_logged_once_in_one_line(engine, monkeypatch, caplog, option):
    value, reason = SLIPS[option]
    waited = []
    monkeypatch.setattr(engine.threading.Event, "wait", lambda self: waited.append(self))
    engine.__opts__, engine.__salt__ = {"__role": "minion"}, {}

    with caplog.at_level(logging.ERROR):
        engine.start(**{option: value})

    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.exc_info is None
    # Salt restarts an engine that has ended, and the engine would log the same line again.
    assert len(waited) == 1


def test_a_prefix_without_a_value_is_the_usual_one(engine):
    engine.__opts__, engine.__salt__ = {"__role": "minion"}, {"event.send": lambda *_: None}

    engine.start(tag_prefix=None, filters=["pool/refresh"])

    assert engine.watched == (None, ["pool/refresh"], "salt/engines/libvirt_events")
