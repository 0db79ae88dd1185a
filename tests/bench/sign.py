"""Measure how many certificates a second the CA signs, notes included, in a throw-away folder."""

import json
import tempfile
import time
from pathlib import Path

import asminion  # noqa: F401 (where saltvirt is)
from saltvirt.ca import answer, store
from saltvirt.ca.authorities import Authorities
from saltvirt.certificates.host import installed

HOSTS = 50


def main():
    """Let fifty hosts ask for their four certificates each; print the figure as JSON."""
    wanted = {purpose: installed.request("h")[1] for purpose in installed.DEFAULT_PURPOSES}
    with tempfile.TemporaryDirectory() as folder:
        place = Authorities(Path(folder) / "ca")
        answer.answer(place, answer.Host(id="h", grains={}), {}, options={}, now=store.utc_now())
        begin = time.monotonic()
        for number in range(HOSTS):
            host = answer.Host(id=f"host{number}", grains={})
            answer.answer(place, host, wanted, options={}, now=store.utc_now())
        seconds = time.monotonic() - begin
    print(json.dumps({"per_second": HOSTS * len(wanted) / seconds}))


if __name__ == "__main__":
    main()
