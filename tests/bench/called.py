"""
Time calls of functions inside one minion's process, in which each was called once before.

The fastest counts: the machine does other things too, and a list takes a millisecond.
"""

import contextlib
import io
import json
import logging
import sys
import time

import salt.config
import salt.loader

# Of what takes long there are few, which its length makes good for.
ROUNDS, ENOUGH_S = (2, 200), 3


def loaded(folder, roots):
    """Return the functions of a minion without a master, whose configuration is in a folder."""
    opts = salt.config.minion_config(f"{folder}/minion")
    opts.update(file_client="local", file_roots={"base": [roots]}, pillar_roots={"base": []})
    opts["grains"] = salt.loader.grains(opts)
    opts["pillar"] = {}
    return salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))


def main(folder, roots, calls):
    """Print ``{what: seconds}``; ``calls`` is ``[[what, function, arguments], ...]``."""
    # A minion without a pillar warns at each call, and to write that is not what is measured.
    logging.disable(logging.WARNING)
    functions, out = loaded(folder, roots), {}
    for what, name, given in json.loads(calls):
        _call(functions[name], given)
        times, least, most = [], *ROUNDS
        while len(times) < least or (len(times) < most and sum(times) < ENOUGH_S):
            begin = time.perf_counter()
            _call(functions[name], given)
            times.append(time.perf_counter() - begin)
        out[what] = min(times)
    print(json.dumps(out))


def _call(function, given):
    # A state prints what it likes.
    with contextlib.redirect_stdout(io.StringIO()):
        function(*given.get("args", ()), **given.get("kwargs", {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
