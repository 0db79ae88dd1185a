"""Load what a minion has when it waits for jobs: with this project, and without, in turns."""

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
WITH, WITHOUT = "with", "without"


def _pss_mib():
    """Return the memory of this process, its share of what is shared."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _loaded(kind, folder):
    """Load what a minion has when it waits for jobs; say what CPU time it took, and its size."""
    begin = time.process_time()
    import salt.config
    import salt.minion

    opts = salt.config.minion_config("/etc/salt/minion")
    # By it the grain knows a daemon, whose jobs are forked.
    opts.update(__cli="salt-minion", multiprocessing=True, file_client="local")
    if kind == WITHOUT:
        opts["extension_modules"] = folder
    salt.minion.SMinion(opts)
    seconds = time.process_time() - begin
    gc.collect()
    print(json.dumps({"seconds": seconds, "mib": _pss_mib()}))


def main():
    """Print ``{"with": {"seconds", "mib"}, "without": ...}``: medians, without the first turn."""
    found = {WITH: [], WITHOUT: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS + 1):
            for kind, rows in found.items():
                argv = [sys.executable, __file__, kind, folder]
                done = subprocess.run(argv, capture_output=True, text=True, check=True)
                if number:
                    rows.append(json.loads(done.stdout.splitlines()[-1]))
    medians = {
        kind: {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        for kind, rows in found.items()
    }
    print(json.dumps(medians))


if __name__ == "__main__":
    _loaded(*sys.argv[1:]) if sys.argv[1:] else main()
