"""Time calls of functions inside one minion's process, in which each was called once before."""

import contextlib
import io
import json
import statistics
import sys
import time

import salt.config
import salt.loader

ROUNDS = 5


def loaded(folder, roots):
    """Return the functions of a minion without a master, whose configuration is in a folder."""
    opts = salt.config.minion_config(f"{folder}/minion")
    opts.update(file_client="local", file_roots={"base": [roots]}, pillar_roots={"base": []})
    opts["grains"] = salt.loader.grains(opts)
    opts["pillar"] = {}
    return salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))


def main(folder, roots, calls):
    """Print ``{what: seconds}``, medians; ``calls`` is ``[[what, function, arguments], ...]``."""
    functions, out = loaded(folder, roots), {}
    for what, name, given in json.loads(calls):
        times = []
        for _ in range(ROUNDS + 1):
            begin = time.perf_counter()
            # A state prints what it likes.
            with contextlib.redirect_stdout(io.StringIO()):
                functions[name](*given.get("args", ()), **given.get("kwargs", {}))
            times.append(time.perf_counter() - begin)
        out[what] = statistics.median(times[1:])
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
