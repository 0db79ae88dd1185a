"""What make nightly runs can be run: its tests are found."""

import re
import subprocess
from pathlib import Path

NIGHTLY = Path(__file__).resolve().parents[1] / "nightly"


def test_make_nightly_finds_tests_of_every_part():
    done = subprocess.run(
        [NIGHTLY, "--collect-only", "-q"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = done.stdout.split("=== ")[1:]
    assert len(parts) >= 5
    for part in parts:
        assert re.search(r"^\d+/\d+ tests collected", part, re.MULTILINE), part[:200]
