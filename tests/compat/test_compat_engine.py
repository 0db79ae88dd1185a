"""The engine sends what that of Salt 3006 sent: tags and data."""

import json
import os
import subprocess

import pytest
from compatkit import CHECKOUT, HERE, flat

ADDRESS = {"family": 0, "node": "127.0.0.1", "service": "5900"}
# What libvirt gives to a callback: ``{OBJECT/NUMBER OF THE EVENT: [arguments]}``.
SAMPLES = {
    "domain/0": [[at, detail] for at in range(9) for detail in range(9)],
    "domain/1": [[]],
    "domain/2": [[3600]],
    "domain/3": [[at] for at in range(8)],
    "domain/5": [[at, ADDRESS, ADDRESS, "none", [["x509dname", "CN=me"]]] for at in range(4)],
    "domain/6": [["/disk", "vda", at, "enospc"] for at in range(4)],
    "domain/7": [[]],
    "domain/9": [["/old", None, "vda", at] for at in range(3)],
    "domain/10": [["ide0", at] for at in range(3)],
    "domain/11": [[0]],
    "domain/12": [[0]],
    "domain/13": [[1048576]],
    "domain/14": [[0]],
    "domain/15": [["net0"]],
    "domain/16": [["vda", job, status] for job in range(7) for status in range(5)],
    "domain/17": [[{"cputune.vcpupin0": "0-1"}]],
    "domain/18": [[state, reason] for state in range(1, 4) for reason in range(4)],
    "domain/19": [["net0"]],
    "domain/20": [[3]],
    "domain/21": [[{"operation": 5, "time_elapsed": 12}]],
    "domain/22": [["net0"]],
    "domain/23": [[at, "http://example.org/x"] for at in range(4)],
    "domain/24": [["vda[1]", "/disk", 100, 7]],
    "network/0": [[at, 0] for at in range(5)],
}
# Where 3006 was wrong: ``{(what of the data, 3006's word, ours)}``.
MENDED = {
    # It misspelt what it looked for.
    ("/local/family", "unknown", "ipv4"),
    ("/remote/family", "unknown", "ipv4"),
    # It took a word for one of another enumeration: of a network that is defined, and of a VM.
    ("/event", "id lifecycle", "defined"),
    ("/detail", "unknown", "postcopy failed"),
}


def sent_by(line, ours):
    """Return ``[[tag, data]]`` of one side."""
    expected = sum(map(len, SAMPLES.values()))
    job = {"ours": ours and str(CHECKOUT), "samples": SAMPLES, "expected": expected}
    done = subprocess.run(
        [f"/opt/salt-{line}/bin/python3", HERE / "engineside.py"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}/_utils" if ours else ""},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def theirs():
    """What 3006's own engine sends."""
    return sent_by("3006", ours=False)


@pytest.mark.parametrize("line", ["3006", "3008"])
def test_it_sends_what_3006_sent(theirs, line):
    ours = sent_by(line, ours=True)

    assert len(theirs) > 150
    assert [tag for tag, _data in ours] == [tag for tag, _data in theirs]
    found = set()
    for (_tag, mine), (_same, its) in zip(ours, theirs, strict=True):
        mine, its = flat(mine), flat(its)
        assert mine.keys() == its.keys()
        found |= {(at, its[at], mine[at]) for at in mine if its[at] != mine[at]}
    assert found == MENDED
