"""Time our answers inside one process beside libvirt's bare bulk call."""

import json
import statistics
import time

import asminion  # noqa: F401 (where saltvirt is)
import libvirt
from saltvirt.core.options import config
from saltvirt.libvirt import connect
from saltvirt.vm.show.host import inspect


def stats(conn, _settings):
    """Make the one bulk call, and nothing else."""
    return conn.getAllDomainStats(0, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)


def bulk(conn, _settings):
    """Fetch what any full answer must fetch: all statistics, and each domain's XML."""
    return [dom.XMLDesc(0) for dom, _values in stats(conn, _settings)]


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
    with connect.open_connection(settings, readonly=False) as conn:
        out = {
            "stats": median(stats, conn, settings),
            "bulk": median(bulk, conn, settings),
            "full_info": median(lambda c, _s: inspect.full_info(c), conn, settings),
            "host_info": median(inspect.host_info, conn, settings),
        }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
