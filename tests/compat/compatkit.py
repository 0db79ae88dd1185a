"""Ask both sides the same questions, and say where their answers differ."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from labkit.settings import CHECKOUT

HERE = Path(__file__).parent
# What all that can have a name is called once in host.xml.
ODD = "win 10 <&'\"> é ☃ %s {x} $HOME;"
# What is made anew each time.
MADE_ANEW = (
    ("UUID", r"\b(?!6695eb01|dd8fe884|dfe224cb)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f-]{17}"),
    ("MAC", r"52:54:00:(?!aa|bb)[0-9a-f:]{8}"),
    ("TIME", r"20[2-9]\d[-_]?\d\d[-_]?\d\d[-_T ]?\d\d[-:_]?\d\d[-:_]?\d\d(\.\d+)?"),
    ("TIME", r"\b1[789]\d{8}(\d{9})?\b"),
)


class Row(NamedTuple):
    """One question: compatrows.py says what is in it."""

    function: str
    label: str
    steps: list
    fails: bool
    shape: bool

    @property
    def name(self):
        """What pytest and compatdiffers.py call it, such as ``virt.setmem running``."""
        kind, function = self.function.split("/")
        return f"{kind.removesuffix('s')} {function} {self.label}".strip().removeprefix("module ")


def step(function, /, *args, is_test=False, **kwargs):
    """Return one call as the sides take it."""
    return {"function": function, "args": args, "kwargs": kwargs, "test": is_test}


def row(function, /, *args, label="", first=(), fails=False, shape=False, **given):
    """Return one row."""
    return Row(function, label, [*first, step(function, *args, **given)], fails, shape)


def virt(name, /, *args, **given):
    """Return a row of the execution module ``virt``."""
    return row(f"modules/virt.{name}", *args, **given)


def state(name, /, *args, label="", **given):
    """Return the two rows of a state of ``virt``: what it would do, and what it does."""
    function = f"states/virt.{name}"
    would, done = (f"{label} {how}".strip() for how in ("test=True", "for real"))
    return [
        row(function, *args, label=would, is_test=True, **given),
        row(function, *args, label=done, **given),
    ]


def xml(name, text):
    """Return a step that writes a file."""
    return step("modules/file.write", f"/FOLDER/srv/{name}", text)


def did(name, /, *args, **kwargs):
    """Return a step of the execution module ``virt``."""
    return step(f"modules/virt.{name}", *args, **kwargs)


def ask(folder, line, ours, calls):
    """Return what one side says: its ``surface``, and ``outcomes`` in the order of the calls."""
    lay_out(folder)
    mine = json.loads(json.dumps(calls).replace("/FOLDER", str(folder)))
    job = {"folder": str(folder), "ours": ours and str(CHECKOUT), "calls": mine}
    said = run(folder, line, "oneside.py", job)
    return {**said, "outcomes": [_lasting(outcome) for outcome in said["outcomes"]]}


def ask_denied(folder, how, calls):
    """Return the outcomes of calls of ours by somebody whom libvirt lets do less; deniedside.py."""
    mine = folder / how.replace(" ", "-")
    lay_out(mine)
    calls = json.loads(json.dumps(calls).replace("/FOLDER", str(mine)))
    job = {"folder": str(mine), "ours": str(CHECKOUT), "calls": calls, "how": how}
    return [_lasting(outcome) for outcome in run(mine, "3008", "deniedside.py", job)]


def lay_out(folder):
    """Make the folder of one side: the host, and the disks of its VMs."""
    folder.mkdir(parents=True)
    text = (HERE / "host.xml").read_text().replace("FOLDER", str(folder))
    (folder / "host.xml").write_text(text)
    for name in ("files/web1.qcow2", "files/pool/off1.qcow2", f"files/{ODD}.qcow2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make = ["qemu-img", "create", "-q", "-f", "qcow2", folder / name, "1G"]
        subprocess.run(make, check=True)
    (folder / "files/odd").mkdir()
    (folder / f"files/odd/{ODD}.raw").write_bytes(bytes(1 << 20))


def run(folder, line, script, job):
    """Return what a script of this folder prints in the Python of a line of Salt."""
    python = f"/opt/salt-{line}/bin/python3"
    # What modules leave in the folder for temporary files goes with this side's own.
    temporary = folder.with_name(f"{folder.name}-tmp")
    temporary.mkdir()
    paths = {"PYTHONPATH": f"{CHECKOUT}/_utils" if job["ours"] else "", "TMPDIR": str(temporary)}
    environment = {**os.environ, **paths}
    done = subprocess.run(
        [python, HERE / script],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.replace(str(folder), "/FOLDER"))


def _lasting(value):
    """Return an answer with words for what is made anew each time."""
    if isinstance(value, dict):
        return {_lasting(key): _lasting(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_lasting(one) for one in value]
    if isinstance(value, bool | float | None):
        return value
    text = str(value)
    for word, pattern in MADE_ANEW:
        text = re.sub(pattern, word, text)
    return value if text == str(value) else text


def all_sides(folder, calls):
    """Return the answers of Salt 3006's own modules, and of ours on both lines of Salt."""
    sides = {"3006": ("3006", False), "ours-3006": ("3006", True), "ours-3008": ("3008", True)}
    with ThreadPoolExecutor(len(sides)) as pool:
        jobs = {
            name: pool.submit(ask, folder / name, line, ours, calls)
            for name, (line, ours) in sides.items()
        }
        return {name: job.result() for name, job in jobs.items()}


def flat(value, path=""):
    """
    Return ``{path: leaf}`` of nested mappings and lists; an empty one is a leaf.

    In a list, the order is not an answer: texts are called by themselves, mappings by their name.
    """
    if isinstance(value, dict) and value:
        items = value.items()
    elif isinstance(value, list) and value:
        items = [(_called(number, one), one) for number, one in enumerate(value)]
    else:
        return {path: value}
    return {at: leaf for key, one in items for at, leaf in flat(one, f"{path}/{key}").items()}


def _called(number, one):
    if isinstance(one, dict):
        return one.get("name", number)
    return one if isinstance(one, str) else number


def differences(theirs, ours, *, shape=False):
    """
    Return ``{path: (theirs, ours)}`` of two outcomes; None is where one has nothing.

    shape
        Compare only which parts there are and of what types, not what is in them.

    The words of an error are each one's own: that both fail is no difference, and that one alone
    does is one, ``/error``.
    """
    errors = theirs.get("error"), ours.get("error")
    # What only one returns would be as many differences as it has parts.
    parts = ("effects",) if any(errors) else ("return", "effects")
    left, right = (_compared(one, parts, shape) for one in (theirs, ours))
    missing = object()
    out = {
        path: (left.get(path), right.get(path))
        for path in sorted(left.keys() | right.keys())
        if left.get(path, missing) != right.get(path, missing)
    }
    return out if all(errors) or not any(errors) else {"/error": errors, **out}


def _compared(one, parts, shape):
    """Return what counts of an outcome, as :func:`flat` has it."""
    out = flat({part: one[part] for part in parts})
    if shape:
        return {path: type(leaf).__name__ for path, leaf in out.items()}
    if "/return/comment" in out and "/return/name" in out:
        # A state's comment is for people: what counts is that there is one.
        out["/return/comment"] = bool(out["/return/comment"])
    return out


def unexplained(found, reasons):
    """Return which differences nobody gave a reason for, and which reasons nothing is left of."""
    new = {
        path: values
        for path, values in found.items()
        if not any(fnmatchcase(path, pattern) for pattern in reasons)
    }
    old = [pattern for pattern in reasons if not any(fnmatchcase(path, pattern) for path in found)]
    return new, old
