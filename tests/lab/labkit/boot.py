"""A node's power supply: it boots the node, and boots it again when it asks for a reboot.

Runs as a process of its own, in a mount namespace of its own, for as long as the node has power:

    python3 boot.py FOLDER     with node.json in it, as labkit/node.py writes it

The disk of a node is an ext4 file system in a file, so that a power cut is one: SIGUSR1 shuts the
file system down as it was at its last fsync or commit (EXT4_IOC_SHUTDOWN), ends process 1, and
boots again from what is left.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
# What is the whole machine's: neither a node nor whoever enters it may touch that.
DENIED = "-sys_module,-sys_time,-sys_rawio,-syslog"
_HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")


def cgroups(name):
    """Return the groups of a node: on machines of cgroup 2, and on those of both kinds."""
    two = [Path(top) for top in _HIERARCHIES[1:] if Path(top, "cgroup.procs").exists()][:1]
    one = [Path(_HIERARCHIES[0])] if Path(_HIERARCHIES[0], "cgroup.procs").exists() else []
    return [top / name for top in two + one]


def remove_cgroups(name):
    """Remove the groups of a node whose processes are gone."""
    for top in cgroups(name):
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


def _own_groups():
    """Return the groups that this process is in, as folders of the same hierarchies."""
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = {names: path for _, names, path in rows}
    tops = [one.parent for one in cgroups("x")]
    return [
        Path(f"{top}{paths.get('name=systemd' if top.name == 'systemd' else '')}") for top in tops
    ]


class Node:
    """One node, from plugging it in to pulling the plug."""

    def __init__(self, folder):
        self.folder = folder
        about = json.loads((folder / "node.json").read_text())
        self.name, self.lower, self.group = about["name"], about["lower"], about["group"]
        self.shares, self.link = about["shares"], about["link"]
        self.is_cut, self.child, self.init = False, None, None

    def mount(self):
        """Mount the node's disk; journal and all, as a machine does after a power cut."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        argv = ["mount", "-t", "ext4", "-o", "loop,noatime", self.folder / "disk.img", disk]
        subprocess.run(argv, check=True)

    def unmount(self):
        """Unmount the node's disk, once its last process has let go of it."""
        argv = ["umount", self.folder / "disk"]
        if not _soon(lambda: subprocess.run(argv, capture_output=True, check=True)):
            subprocess.run(["umount", "-l", self.folder / "disk"], check=True)

    def boot(self):
        """Run the node until its process 1 ends; return how that ended."""
        master, console = os.openpty()
        log = (self.folder / "console").open("ab")
        reader = threading.Thread(target=_copy, args=(master, log), daemon=True)
        reader.start()
        for group in cgroups(self.group):
            group.mkdir(exist_ok=True)
        environment = dict(
            os.environ, CONSOLE=os.ttyname(console), SEED=str(self.folder / "seed"), DENIED=DENIED
        )
        environment["SHARES"] = "\n".join(":".join(share) for share in self.shares)
        script = Path(__file__).with_name("root.sh")
        argv = [
            "unshare",
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--cgroup",
            "--fork",
            "--kill-child=KILL",
            script,
            "init",
            self.folder / "root",
            self.lower,
            self.folder / "disk",
            self.name,
        ]
        self.child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, env=environment, preexec_fn=self._join_groups
        )
        try:
            self._power_on()
        except (OSError, subprocess.CalledProcessError) as error:
            # Did it end meanwhile? Then it has said why.
            time.sleep(0.2)
            if code := self.child.poll():
                raise subprocess.CalledProcessError(code, script) from None
            raise OSError(getattr(error, "stderr", None) or error) from None
        code = self.child.wait()
        self.init = None
        os.close(console)
        reader.join(1)
        return code

    def _join_groups(self):
        for group in cgroups(self.group):
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def _wait_a_little(self):
        time.sleep(0.01)
        if self.child.poll() is not None:
            raise OSError("it ended at once")

    def _power_on(self):
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        while not (found := children.read_text().split()):
            self._wait_a_little()
        self.init = int(found[0])
        own = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self.init}/ns/net").readlink() == own:
            self._wait_a_little()
        subprocess.run(
            ["nsenter", "-t", found[0], "-n", "ip", "link", "set", "lo", "up"],
            check=True,
            capture_output=True,
            text=True,
        )
        # Where groups have controllers, one with processes of its own can give none to those below.
        for procs in (group / "cgroup.procs" for group in _own_groups()):
            if procs.exists():
                procs.write_text(str(self.child.pid))
        if self.link:
            plug(self.folder.parent, self.link, self.init)
        self.child.stdin.write(b"on\n")
        self.child.stdin.close()

    def cut_power(self, *_signal):
        """Lose all that was not yet written to the disk, and end."""
        handle = os.open(self.folder / "disk", os.O_RDONLY)
        try:
            # Between two boots the folder is one of this machine's own file system: hands off.
            if os.fstat(handle).st_dev == self.folder.stat().st_dev:
                return
            self.is_cut = True
            fcntl.ioctl(handle, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(handle)
        if self.init:
            os.kill(self.init, signal.SIGKILL)


def _soon(do):
    """Try for ten seconds; return whether it was done."""
    for _ in range(100):
        try:
            do()
            return True
        except (OSError, subprocess.CalledProcessError):
            time.sleep(0.1)
    return False


def _copy(master, log):
    with open(master, "rb", buffering=0) as said, log:
        while True:
            try:
                text = said.read(4096)
            except OSError:
                return
            if not text:
                return
            log.write(text)
            log.flush()


def is_roots(pid):
    """Return whether a process is root's, in this user namespace: anybody can bear a mark."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
        ids = next(row for row in rows if row.startswith("Uid:")).split()[1:]
        same = Path(f"/proc/{pid}/ns/user").readlink() == Path("/proc/self/ns/user").readlink()
    except OSError:
        return False
    return set(ids) == {"0"} and same


def _switch(root):
    try:
        pid = int((root / "switch" / "pid").read_text())
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if b"SALTVIRT_NODE=switch" in words and is_roots(pid) else None


def plug(root, link, pid):
    """Join a node to the lab's switch: a pair of links, one end in each."""
    if not (switch := _switch(root)):
        raise OSError(f"the switch is off: {link['name']} has nothing to be plugged into")
    inside = ["nsenter", "-t", str(switch), "-n", "ip"]
    name = link["name"]
    subprocess.run([*inside, "link", "del", "dev", name], capture_output=True, check=False)
    pair = [
        "link",
        "add",
        "name",
        name,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "address",
        link["mac"],
        "netns",
        str(pid),
    ]
    subprocess.run([*inside, *pair], check=True)
    state = "down" if (root / name / "cut").exists() else "up"
    subprocess.run([*inside, "link", "set", "dev", name, "master", "segment", state], check=True)


def main():
    """Boot until the node is powered off; a reboot and a power cut boot it again."""
    node = Node(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, node.cut_power)
    while True:
        node.mount()
        node.is_cut = False
        code = node.boot()
        _soon(lambda: remove_cgroups(node.group))
        node.unmount()
        if code != -signal.SIGHUP and not node.is_cut:
            return 0


def _main():
    """End with the cause as the last line: labkit/node.py shows it."""
    try:
        return main()
    except subprocess.CalledProcessError:
        return 1  # that program has said why
    except OSError as error:
        print(f"no power: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(_main())
