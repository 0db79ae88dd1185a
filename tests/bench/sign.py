"""Measure how many certificates a second the CA signs, notes included, in a throw-away folder."""

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "_utils"))

from saltvirt.ops import certificates  # noqa: E402
from saltvirt.pki import answer, store  # noqa: E402

HOSTS = 50


def main():
    """Let fifty hosts ask for their four certificates each; print the figure as JSON."""
    wanted = {purpose: certificates.request("h")[1] for purpose in certificates.DEFAULT_PURPOSES}
    with tempfile.TemporaryDirectory() as folder:
        place = store.Store(Path(folder) / "ca")
        place.revocations(store.utc_now())
        begin = time.monotonic()
        for number in range(HOSTS):
            answer.answer(place, f"host{number}", wanted, grains={}, others={}, options={},
                          now=store.utc_now())  # fmt: skip
        seconds = time.monotonic() - begin
    print(json.dumps({"per_second": HOSTS * len(wanted) / seconds}))


if __name__ == "__main__":
    main()
