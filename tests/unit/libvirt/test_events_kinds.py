"""How the engine's library reads libvirt's events, among them real ones of the test driver."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import libvirt
import pytest
import saltvirt
from saltvirt.core.errors import BadConfig
from saltvirt.libvirt import events

NAMES = {kind.name for kind in events.KINDS}
DOMAIN = "VIR_DOMAIN_EVENT_"
AGENT = "VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_"
# The prefixes of libvirt's constants in each enumeration.
PREFIXES = {
    "_WATCHDOG": f"{DOMAIN}WATCHDOG_",
    "_IO_ERROR": f"{DOMAIN}IO_ERROR_",
    "_GRAPHICS": f"{DOMAIN}GRAPHICS_",
    "_ADDRESS": f"{DOMAIN}GRAPHICS_ADDRESS_",
    "_DISK_CHANGE": f"{DOMAIN}DISK_",
    "_TRAY_CHANGE": f"{DOMAIN}TRAY_CHANGE_",
    "_JOB_TYPE": "VIR_DOMAIN_BLOCK_JOB_TYPE_",
    "_JOB": "VIR_DOMAIN_BLOCK_JOB_",
    "_AGENT_STATE": f"{AGENT}STATE_",
    "_AGENT_REASON": f"{AGENT}REASON_",
    "_METADATA": "VIR_DOMAIN_METADATA_",
    "_MEMORY_RECIPIENT": f"{DOMAIN}MEMORY_FAILURE_RECIPIENT_",
    "_MEMORY_ACTION": f"{DOMAIN}MEMORY_FAILURE_ACTION_",
    "_NETWORK": "VIR_NETWORK_EVENT_",
    "_POOL": "VIR_STORAGE_POOL_EVENT_",
    "_NODEDEV": "VIR_NODE_DEVICE_EVENT_",
    "_SECRET": "VIR_SECRET_EVENT_",
}

# libvirt counts from 1 there.
UNNUMBERED = ("_AGENT_STATE", "unknown")


def number(prefix, word):
    """Return libvirt's number of a word."""
    return vars(libvirt)[prefix + word.upper().replace(" ", "_")]


@pytest.mark.parametrize("name", PREFIXES)
def test_a_word_is_where_libvirt_has_its_number(name):
    words = vars(events)[name]

    numbers = {word: number(PREFIXES[name], word) for word in words if (name, word) != UNNUMBERED}
    assert numbers == {w: index for index, w in enumerate(words) if (name, w) != UNNUMBERED}


def test_a_word_of_a_vms_life_is_where_libvirt_has_its_number():
    for index, (event, details) in enumerate(events._LIFECYCLE.items()):
        assert number(DOMAIN, event) == index
        prefix = f"{DOMAIN}{event.upper()}_"
        assert [number(prefix, detail) for detail in details] == list(range(len(details)))
        constants = [
            constant
            for constant in vars(libvirt)
            if constant.startswith(prefix) and "_LAST" not in constant
        ]
        assert len(constants) == len(details), constants


def test_every_kind_of_event_that_libvirt_has_is_read():
    ids = {name for name in vars(libvirt) if "_EVENT_ID_" in name and not name.endswith("_LAST")}
    # If two kinds report the same event, the engine listens to the one with more detail.
    read_ids = {event_id for kind in events.KINDS for event_id in kind.ids} | {
        "VIR_DOMAIN_EVENT_ID_IO_ERROR"
    }

    assert ids - read_ids == set()


def test_a_number_that_is_not_known_is_unknown():
    lifecycle = events.KINDS[0].read

    assert lifecycle(2, 99) == {"event": "started", "detail": "unknown"}
    assert lifecycle(99, 0) == {"event": "unknown", "detail": "unknown"}
    assert events.word(("a",), -1) == "unknown"


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (None, NAMES),
        ([], NAMES),
        (["all"], NAMES),
        ("all", NAMES),
        (["domain", "all"], NAMES),
        ("domain/lifecycle", {"domain/lifecycle"}),
        (["domain/reboot", "pool"], {"domain/reboot", "pool/lifecycle", "pool/refresh"}),
        (("secret",), {"secret/lifecycle", "secret/value_changed"}),
    ],
)
def test_filters_choose_kinds(filters, names):
    assert {kind.name for kind in events.chosen(filters)} == names


@pytest.mark.parametrize("filters", [["domian"], "domain/", {"domain": 1}, [1], 5, [["all"]]])
def test_a_filter_that_means_nothing_is_refused(filters):
    with pytest.raises(BadConfig, match="filters: .*'domain/lifecycle'"):
        events.chosen(filters)


@pytest.mark.parametrize(
    ("uri", "uri_part"),
    [
        ("qemu:///system", "qemu/system"),
        ("qemu+ssh://user@host:1234/system", "qemu+ssh/user@host:1234/system"),
        ("test:///default", "test/default"),
        ("lxc:///", "lxc"),
    ],
)
def test_a_tag_is_that_of_3006(uri, uri_part):
    assert events.tag("pre/fix", uri, events.KINDS[0]) == f"pre/fix/{uri_part}/domain/lifecycle"


# A process that listens; a thread of it causes the events.
LISTENER = """
import json, logging, sys, threading
import libvirt
from saltvirt.libvirt import events
from saltvirt.core.salt.lazyimport import OptionalModule

# As in a minion, which has imported the library before libvirt's module was looked for.
events.libvirt = OptionalModule("libvirt")
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level="INFO", force=True)
events._RETRY_S = 0.1


class Heard(logging.Handler):
    def __init__(self, work):
        super().__init__()
        self.work = work

    def emit(self, record):
        if "libvirt answers" in record.getMessage():
            threading.Thread(target=self.work, daemon=True).start()


def when_heard(work):
    logging.getLogger().addHandler(Heard(work))


DEAD = "test+unix:///default?socket=/nowhere"
"""
HAPPENS = """
def happens():
    conn = libvirt.open("test:///default")
    domain = conn.lookupByName("test")
    domain.suspend()
    domain.resume()
    domain.destroy()
    domain.create()
    conn.storagePoolLookupByName("default-pool").refresh()
    conn.networkLookupByName("default").destroy()
"""


def listen(text, lines):
    """Run a listener until it has printed so many lines, and return them."""
    argv = [sys.executable, "-c", LISTENER + text]
    environ = {**os.environ, "PYTHONPATH": str(Path(saltvirt.__file__).parents[1])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ) as listener:
        # If a line never comes, the timer kills the listener, and readline returns an empty one.
        timer = threading.Timer(60, listener.kill)
        timer.start()
        try:
            return [listener.stdout.readline().strip() for _ in range(lines)]
        finally:
            timer.cancel()
            listener.kill()


def test_real_events_of_vms_networks_and_pools_are_sent():
    text = """
def send(tag, data):
    print(tag, json.dumps(data), flush=True)

when_heard(happens)
chosen = events.chosen(["domain/lifecycle", "network", "pool"])
events.watch("test:///default", chosen, "pre", send)
"""
    _connected, *lines = listen(HAPPENS + text, 7)

    sent_events = [line.split(" ", 1) for line in lines]
    tags = [tag for tag, _data in sent_events]
    data = [json.loads(text) for _tag, text in sent_events]
    assert tags[:4] == ["pre/test/default/domain/lifecycle"] * 4
    assert tags[4:] == ["pre/test/default/pool/refresh", "pre/test/default/network/lifecycle"]
    assert [(event["event"], event.get("detail")) for event in data] == [
        ("suspended", "paused"),
        ("resumed", "unpaused"),
        ("stopped", "destroyed"),
        ("started", "booted"),
        ("refresh", None),
        ("stopped", "unknown"),
    ]
    uuid = "6695eb01-f6a4-8304-79aa-97f2502e193f"
    assert data[0]["domain"] == {"name": "test", "id": 1, "uuid": uuid}
    assert data[4]["pool"].keys() == data[5]["network"].keys() == {"name", "uuid"}
    assert {event["uri"] for event in data} == {"test:///default"}


@pytest.mark.slow
def test_a_lost_libvirt_is_waited_for_and_logged_once():
    # The tests' own root has no libvirtd, so isAlive is replaced. The failing reconnections are
    # real, and so are the last connection and its event.
    text = """
opened, alive, open_ = [], {}, libvirt.openReadOnly

def openReadOnly(uri):
    opened.append(uri)
    conn = open_(DEAD if len(opened) in (2, 3, 4) else uri)
    alive[len(opened)] = conn
    if len(opened) == 5:
        when_heard(libvirt.open(uri).lookupByName("test").suspend)
    return conn

libvirt.openReadOnly = openReadOnly
libvirt.virConnect.isAlive = lambda self: self is not alive[1]
events.watch("test:///default", events.chosen("domain/lifecycle"), "pre",
             lambda tag, data: print("sent", data["event"], len(opened), flush=True))
"""
    connected, error, reconnected, sent = listen(text, 4)

    assert (
        connected
        == reconnected
        == "INFO libvirt answers at test:///default: its events are passed on"
    )
    assert error.startswith("ERROR libvirt does not answer at test:///default: ")
    assert sent == "sent suspended 5"


@pytest.mark.slow
def test_a_libvirt_that_is_missing_at_the_start_is_logged_once_and_waited_for():
    text = """
tried, open_ = [], libvirt.openReadOnly

def openReadOnly(uri):
    tried.append(uri)
    return open_(uri if len(tried) > 3 else DEAD)

libvirt.openReadOnly = openReadOnly
events.watch("test:///default", events.chosen("pool"), "pre", print)
"""
    error, connected = listen(text, 2)

    assert "Failed to connect socket to '/nowhere'" in error
    assert error.startswith("ERROR") and connected.startswith("INFO libvirt answers")


def test_an_event_that_cannot_be_sent_is_logged_and_the_next_one_is_sent():
    text = """
def send(tag, data):
    if data["event"] == "suspended":
        raise OSError("no bus")
    print("sent", data["event"], flush=True)

when_heard(happens)
events.watch("test:///default", events.chosen("domain/lifecycle"), "pre", send)
"""
    _connected, error, sent = listen(HAPPENS + text, 3)

    assert error == "ERROR an event of domain/lifecycle could not be sent: OSError: no bus"
    assert sent == "sent resumed"


def test_a_kind_that_this_libvirt_lacks_is_left_out_and_logged():
    # The test driver has no secrets.
    text = """
when_heard(happens)
events.watch("test:///default", events.chosen(["secret", "pool"]), "pre",
             lambda tag, data: print(tag, flush=True))
"""
    lines = listen(HAPPENS + text, 4)

    assert [line.split(": ")[0] for line in lines[:2]] == [
        "WARNING no events of secret/lifecycle",
        "WARNING no events of secret/value_changed",
    ]
    assert lines[3] == "pre/test/default/pool/refresh"
