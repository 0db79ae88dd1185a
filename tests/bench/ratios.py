"""The ratios of a run beside those of the last run that was accepted."""

import json
from pathlib import Path

ACCEPTED = Path(__file__).resolve().parent / "ratios.json"
# A tenth worse is noise.
WORSE = 1.1
TITLE = "our figure by the rival's: less is better"
HEADS = ("ratio", "now", "earlier", "")
NONE = "no earlier ratios; run with --accept"


def read(path=ACCEPTED):
    """Return the accepted ratios by their names; none have been accepted if it is empty."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(found, path=ACCEPTED):
    """Have the ratios of a run be those that the next ones are compared with."""
    path.write_text(
        json.dumps({name: round(one, 3) for name, one in found.items()}, indent=2) + "\n"
    )


def compared(found, earlier):
    """Return ``(rows of a table, names of the ratios that are worse)``."""
    rows, worse = [], []
    for name in [*found, *(name for name in earlier if name not in found)]:
        now, was = found.get(name), earlier.get(name)
        if now is not None and was is not None and now > was * WORSE:
            worse.append(name)
        rows.append((name, _shown(now), _shown(was), "WORSE" if name in worse else ""))
    return rows, worse


def _shown(ratio):
    return "-" if ratio is None else f"{ratio:.2f} x"
