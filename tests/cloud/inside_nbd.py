"""What tests/cloud/test_nbd.py has done where the kernel has ``nbd``; prints one JSON line each."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from saltvirt.core.errors import VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import write
from saltvirt.seeding.offline import hostmount
from saltvirt.seeding.seedmodel import Identity, Installation
from saltvirt.storage.images import validation

FOLDER = Path(sys.argv[1])
SETTINGS = HostSettings(state_dir="/run/state", seed={"allow_host_mount": True})
CONTEXT = Context(settings=SETTINGS, opts={})


def say(name, **more):
    """Print what a part found, with what is attached and mounted after it."""
    attached = [path.parent.name for path in Path("/sys/block").glob("nbd*/pid")]
    mounts = [
        line.split()[1]
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.startswith("/dev/nbd")
    ]
    left = [path.name for path in Path("/run/state/appliances").glob("*")]
    print(
        json.dumps(
            {
                "name": name,
                "attached": attached,
                "mounts": mounts,
                "left": left,
                "second": round(time.monotonic()),
                **more,
            }
        ),
        flush=True,
    )


def seed(disk, identity, install=None):
    """Seed a disk by nbd; return the error's text, None if there was none."""
    path, who = str(FOLDER / disk), Identity(**identity)
    try:
        fmt = validation.validate(path, backing_below=["/"]).format
        write.seed_disk(CONTEXT, path, fmt, who, via="nbd", install=install)
    except VirtError as exc:
        return str(exc)
    return None


def hostile(identity):
    """Seed disks that strangers made."""
    before = {path: path.stat().st_mtime_ns for path in (Path("/etc"), Path("/etc/hostname"))}
    for disk in sorted(path.name for path in FOLDER.glob("bad-*")):
        error = seed(disk, identity, install=Installation(kind="boot", script="true"))
        after = {path: path.stat().st_mtime_ns for path in before}
        say(disk, error=error, touched=after != before or Path("/etc/minion_id").exists())


def killed(identity):
    """Kill the worker in the middle, then what asked for it."""
    for whom in ("worker", "asker"):
        code = (
            f"import sys; sys.argv = ['x', {str(FOLDER)!r}]; sys.path.insert(0, "
            f"{str(Path(__file__).parent)!r}); import inside_nbd, json; "
            f"print(inside_nbd.seed('slow.qcow2', json.loads({json.dumps(identity)!r})))"
        )
        asker = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 120
        while not list(Path("/sys/block").glob("nbd*/pid")) and time.monotonic() < deadline:
            time.sleep(0.01)
        was_attached = bool(list(Path("/sys/block").glob("nbd*/pid")))
        if whom == "asker":
            asker.send_signal(signal.SIGKILL)
        else:
            subprocess.run(["pkill", "-9", "-f", "offline/worker"], check=False)
        asker.wait()
        while list(Path("/sys/block").glob("nbd*/pid")) and time.monotonic() < deadline:
            time.sleep(0.05)
        check = ["qemu-img", "check", "-q", "-f", "qcow2", FOLDER / "slow.qcow2"]
        while subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 1:
            if time.monotonic() > deadline:
                subprocess.run(["ps", "-ef"], check=False)
                raise AssertionError("the image is still locked")
            time.sleep(0.2)
        say(f"killed-{whom}", was_attached=was_attached)


def modules():
    """Do what the functions of qemu_nbd do."""
    device = hostmount.connect(str(FOLDER / "slow.qcow2"), "qcow2")
    mounted = hostmount.mount_device(SETTINGS, device, "/run/mnt")
    options = [
        line.split()[3]
        for line in Path("/proc/mounts").read_text().splitlines()
        if "/run/mnt" in line
    ]
    names = sorted(os.listdir(next(iter(mounted))))
    say("mounted", mounted=mounted, options=options, names=names)
    say("cleared", rest=hostmount.clear(mounted))


def main():
    """Do all of it."""
    identity = json.loads((FOLDER / "identity.json").read_text())
    say("seeded", error=seed("good.qcow2", identity))
    if sys.argv[2:] != ["only"]:
        hostile(identity)
        killed(identity)
        modules()


if __name__ == "__main__":
    main()
