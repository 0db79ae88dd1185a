"""
One side of the comparison of the engine: what it sends of real events, and of played ones.

It takes a job as JSON from standard input: ``ours`` is the checkout or None, ``samples`` are
``{kind: arguments of libvirt's callback}`` for what the test driver never does. It prints a list of
``[tag, data]``: first of the real events, then of the samples.
"""

import json
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

import libvirt  # noqa: E402
import salt.config  # noqa: E402
import salt.loader  # noqa: E402

URI = "test:///default"
# What the test driver has; 3006's ends with an error if it is asked for more.
FILTERS = ["domain", "network", "pool", "nodedev"]
GUEST = (
    "<domain type='test'><name>new</name><uuid>6695eb01-f6a4-8304-79aa-97f2502e1005</uuid>"
    "<memory>65536</memory><os><type>hvm</type></os></domain>"
)


def happens(conn):
    """Have something of each kind happen that the test driver tells of."""
    guest = conn.defineXML(GUEST)
    guest.create()
    guest.suspend()
    guest.resume()
    guest.shutdown()
    guest.create()
    guest.destroy()
    guest.undefine()
    network = conn.networkLookupByName("default")
    network.destroy()
    network.create()
    network.destroy()
    network.undefine()
    pool = conn.storagePoolLookupByName("default-pool")
    pool.refresh()
    pool.destroy()
    pool.undefine()


def registering(conn, kinds):
    """Have the samples called back as soon as their kind is registered, with real objects."""
    domain = conn.lookupByName("test")
    things = {
        "domain": domain,
        "network": conn.networkLookupByName("default"),
        "pool": conn.storagePoolLookupByName("default-pool"),
    }
    played = []
    for name in ("domain", "network"):
        method = f"{name}EventRegisterAny"
        real = getattr(libvirt.virConnect, method)

        def register(self, thing, number, callback, opaque, real=real, name=name):
            for said in kinds.get(f"{name}/{number}", ()):
                played.append(partial(callback, self, things[name], *said, opaque))
            return real(self, thing, number, callback, opaque)

        setattr(libvirt.virConnect, method, register)
    return played


def main():
    """Do the job of standard input."""
    job = json.load(sys.stdin)
    sent = []
    libvirt.virEventRegisterDefaultImpl()
    conn = libvirt.open(URI)
    played = registering(conn, job["samples"])

    def look(_timer, _nothing):
        # Salt's loader lets an engine send only in its own thread, which is that of the loop.
        if sent and sent[-1][1].get("pool") and sent[-1][1]["event"] == "undefined":
            for play in played:
                play()
            json.dump(sent, sys.stdout)
            sys.stdout.flush()
            os._exit(0)

    def soon():
        while len(played) < job["expected"]:
            time.sleep(0.05)
        happens(conn)

    libvirt.virEventAddTimeout(100, look, None)
    threading.Thread(target=soon, daemon=True).start()
    opts = salt.config.minion_config(None)
    opts.update(module_dirs=[job["ours"]] if job["ours"] else [], grains={}, __role="minion")
    # The engine of a minion sends by this function.
    functions = {"event.send": lambda tag, data: sent.append([tag, data])}
    engines = salt.loader.engines(opts, functions, {}, salt.loader.utils(opts))
    engines["libvirt_events.start"](URI, "pre", FILTERS)


main()
