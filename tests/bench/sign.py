"""Measure how many certificates a second the CA signs, notes included, in a throw-away folder."""

import json
import tempfile
import time
from pathlib import Path

import asminion  # noqa: F401 (where saltvirt is)
from saltvirt.ops.certificates import installed
from saltvirt.pki import answer, store

HOSTS = 50


def main():
    """Let fifty hosts ask for their four certificates each; print the figure as JSON."""
    wanted = {purpose: installed.request("h")[1] for purpose in installed.DEFAULT_PURPOSES}
    with tempfile.TemporaryDirectory() as folder:
        place = store.Store(Path(folder) / "ca")
        place.revocations(store.utc_now())
        begin = time.monotonic()
        for number in range(HOSTS):
            answer.answer(
                place,
                f"host{number}",
                wanted,
                grains={},
                others={},
                options={},
                now=store.utc_now(),
            )
        seconds = time.monotonic() - begin
    print(json.dumps({"per_second": HOSTS * len(wanted) / seconds}))


if __name__ == "__main__":
    main()
