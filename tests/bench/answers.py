"""
What it costs the master that hosts sign: 200 answers to virt.host_info, signed and not.

Both go the whole way that an answer has in the runner: an event as Salt's bus carries it, the
survey's types, the hints. It is CPU time: the hosts sign side by side while the master waits.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "_utils"), str(HERE.parent / "data")]

import told  # noqa: E402
from salt.utils.event import SaltEvent  # noqa: E402
from saltvirt.cluster.inventory import lastseen  # noqa: E402
from saltvirt.core import wire  # noqa: E402
from saltvirt.core.crypto import keypair, signed  # noqa: E402
from saltvirt.core.salt import answering  # noqa: E402
from saltvirt.placement.answers import HostInfo  # noqa: E402

HOSTS, VMS, ROUNDS = 200, 20, 7
JID, FUN = "20260101000000000001", "virt.host_info"
TITLE = (
    f"{HOSTS} hosts with {VMS} VMs answer virt.host_info: what the master does of it, "
    f"median of {ROUNDS}"
)
HEADS = ("hosts", "unsigned", "signed", "ratio", "more in all", "a host's signing")


def _answers():
    """Return ``{host: answer}``."""
    pattern = next(iter(json.loads((HERE.parent / "data/fleets/three.json").read_text()).values()))
    return {
        f"h{number}": {**pattern, "vms": {f"vm{number}-{one}": told.VM for one in range(VMS)}}
        for number in range(HOSTS)
    }


def _event(host, value):
    """Return the bytes of a return on Salt's bus."""
    data = {"id": host, "jid": JID, "fun": FUN, "return": value, "retcode": 0, "success": True}
    return SaltEvent.pack(f"salt/job/{JID}/ret/{host}", data)


def _taken(opts, events, value_of):
    """Read all events as a survey does; return what CPU time that took."""
    begin = time.process_time()
    infos = {}
    for event in events:
        _tag, data = SaltEvent.unpack(event)
        infos[data["id"]] = wire.read(data["id"], FUN, HostInfo, value_of(data))
    lastseen.refresh(
        opts, lastseen.ReportedNames(names_by_host={host: info.vms for host, info in infos.items()})
    )
    return time.process_time() - begin


def _said(answers, private):
    """Return ``({host: signed answer}, CPU time of one)``: all that a host does to sign."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "minion.pem").write_text(private)
        packed = {}
        begin = time.process_time()
        for host, one in answers.items():
            opts, functions = {"pki_dir": folder, "id": host}, {FUN: lambda value=one: value}
            packed[host] = answering.answer(opts, functions, {}, JID, {"fun": FUN}, lambda: None)
        return packed, (time.process_time() - begin) / HOSTS


def measured():
    """Return ``(unsigned, signed, signing)`` in seconds; the last of one host."""
    public, private = keypair.generate()
    answers = _answers()
    plain = [_event(host, value) for host, value in answers.items()]
    packed, signing = _said(answers, private)
    events = [_event(host, one) for host, one in packed.items()]

    def checked(data):
        return signed.unpack(data["return"], public, minion=data["id"], about=JID).value

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        opts = {"cachedir": folder}
        for _round in range(ROUNDS):
            one = _taken(opts, plain, lambda data: data["return"])
            rounds.append((one, _taken(opts, events, checked)))
    unsigned, with_ = (statistics.median(column) for column in zip(*rounds, strict=True))
    return unsigned, with_, signing


def rows(found=None):
    """Yield the row of the table; note the ratio in ``found``."""
    unsigned, with_, signing = measured()
    if found is not None:
        found[f"{HOSTS} signed answers on the master, unsigned"] = with_ / unsigned
    yield (
        HOSTS,
        f"{unsigned:.3f} s",
        f"{with_:.3f} s",
        f"{with_ / unsigned:.2f} x",
        f"{1000 * (with_ - unsigned):.0f} ms",
        f"{1000 * signing:.2f} ms",
    )


if __name__ == "__main__":
    print(*HEADS, sep=" | ")
    print(*next(rows()), sep=" | ")
