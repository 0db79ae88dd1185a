"""Time our answers inside one process beside libvirt's bare bulk call."""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "_utils"))

import libvirt  # noqa: E402
from saltvirt import config  # noqa: E402
from saltvirt.kvm import connect  # noqa: E402
from saltvirt.ops import inspect  # noqa: E402


def bulk(conn, _settings):
    """Do what any answer must do: all statistics, and each domain's XML."""
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return [dom.XMLDesc(0) for dom, _stats in conn.getAllDomainStats(0, flags)]


def median(function, conn, settings):
    """Return the median of five runs in seconds."""
    times = []
    for _ in range(5):
        begin = time.monotonic()
        function(conn, settings)
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def main():
    """Print the figures as JSON."""
    settings = config.HostSettings()
    with connect.opened(settings, readonly=False) as conn:
        out = {
            "bulk": median(bulk, conn, settings),
            "full_info": median(lambda c, _s: inspect.full_info(c), conn, settings),
            "host_info": median(inspect.host_info, conn, settings),
        }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
