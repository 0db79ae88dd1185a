"""One VM, twenty moves: its file stays whole, its counter never stops for long."""

import re
import threading
import time

import pytest
from cloudkit import ticks, wait
from movekit import move, numbers, where

pytestmark = pytest.mark.nightly


class Watch(threading.Thread):
    """Note when the guest's console grows, on whichever host."""

    def __init__(self, cloud):
        super().__init__()
        self._paths = [cloud.folder(h) / "var/log/libvirt/qemu/m1-console.log" for h in cloud.hosts]
        self._end, self.gaps_s = threading.Event(), []

    def run(self):
        """Look fifty times a second."""
        before, since = None, time.monotonic()
        while not self._end.wait(0.02):
            sizes = [path.stat().st_size if path.exists() else 0 for path in self._paths]
            # A log that goes away with the VM is not a sign of life.
            grew = before and any(now > then for now, then in zip(sizes, before, strict=True))
            if grew or before is None:
                self.gaps_s.append(time.monotonic() - since)
                since = time.monotonic()
            before = sizes

    def end(self):
        """Stop, and return the longest times in seconds without a word of the guest."""
        self._end.set()
        self.join()
        return sorted(self.gaps_s)[-2:]


def sums(cloud, host):
    """Return the checksums that the guest has printed on this host."""
    return set(re.findall(r"SUM ([0-9a-f]{32})", cloud.console(host, "m1")))


def test_twenty_moves_back_and_forth(cloud3, m1):
    seen, found, downtimes, here = [], set(), [], "hyper1"
    watch = Watch(cloud3)
    watch.start()
    for _ in range(10):
        for target in ("hyper2", "hyper1"):
            seen += numbers(cloud3, here)
            found |= sums(cloud3, here)
            downtimes.append(move(cloud3, target)["downtime_ms"])
            assert where(cloud3) == {target: "running"}
            here = target
    second, longest = watch.end()
    seen += numbers(cloud3, here)
    found |= sums(cloud3, here)

    print(
        f"20 moves: longest silence {longest:.2f} s, downtime {min(downtimes)}-"
        f"{max(downtimes)} ms"
    )
    assert seen == sorted(set(seen)), "a number was printed twice, or out of order"
    assert len(found) == 1, "the file on the guest's disk has changed"
    # One may be the machine's, which is shared.
    assert second < 1 and longest < 2 and sorted(downtimes)[-2] < 1000


@pytest.mark.parametrize(
    "words",
    [
        ["parallel_connections=3"],
        ["compressed=True", "comp_methods=xbzrle", f"comp_xbzrle_cache={64 << 20}"],
        [
            "compressed=True",
            "comp_methods=mt",
            "comp_mt_level=1",
            "comp_mt_threads=2",
            "comp_mt_dthreads=2",
        ],
        ["compressed=True"],
    ],
)
def test_it_moves_by_several_connections_and_compressed(cloud3, m1, words):
    before = ticks(cloud3, "hyper1", m1)

    done = move(cloud3, "hyper2", *words)

    assert done["memory_bytes"] > 2**20 and where(cloud3) == {"hyper2": "running"}
    wait("the counter", lambda: ticks(cloud3, "hyper2", m1) > before)
