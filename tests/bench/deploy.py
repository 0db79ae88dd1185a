"""Measure the CPU time of virt.init of an overlay clone with seeding, children included."""

import json
import os
import statistics

import asminion
from saltvirt.core.crypto import keypair
from saltvirt.core.options import config
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm import spec
from saltvirt.vm.create.host import create
from saltvirt.vm.purge.host import purge

ROUNDS = 5
IMAGE = "salt://images/tiny.qcow2"


def cpu_s():
    """Return the CPU time of this process and of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Watched:
    """Measure what libvirt's define and start cost, by wrapping the two calls."""

    def __init__(self):
        self.spent = 0.0
        for name in ("define", "start"):
            setattr(lifecycle, name, self._wrap(getattr(lifecycle, name)))

    def _wrap(self, function):
        def call(*args):
            begin = cpu_s()
            try:
                return function(*args)
            finally:
                self.spent += cpu_s() - begin

        return call


def main():
    """Deploy and purge a few times; print the medians as JSON."""
    opts = asminion.options()
    settings = config.host_settings(opts)
    context, watched = Context(settings=settings, opts=opts), Watched()
    public, private = keypair.generate()
    totals, libvirts = [], []
    for number in range(ROUNDS + 1):
        given = {"image": IMAGE, "pub_key": public, "priv_key": private}
        begin, watched.spent = cpu_s(), 0.0
        deployment = spec.deployment(settings, f"speed{number}", 1, 96, given)
        create.create(context, deployment)
        if number:  # the first one fetches the image
            totals.append(cpu_s() - begin)
            libvirts.append(watched.spent)
        with connect.open_connection(settings, readonly=False) as conn:
            purge.purge(conn, settings, f"speed{number}")
    print(
        json.dumps(
            {
                "cpu": statistics.median(totals),
                "libvirt": statistics.median(libvirts),
                "rounds": ROUNDS,
            }
        )
    )


if __name__ == "__main__":
    main()
