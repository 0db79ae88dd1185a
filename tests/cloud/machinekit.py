"""A user's machine for the tests: a Debian that is a node of a lab, and has a lab of its own in it.

A node in a node is where the lab finds what most machines have: systemd, and groups of version 2
alone. The cache is the one of this machine, so that nothing is built twice.
"""

import json
import os
import subprocess
from contextlib import contextmanager

from cloudkit import LAB
from labkit import layers, node, roots
from labkit.run import run
from labkit.settings import CACHE, CHECKOUT

# What a newcomer has before he types "make": a Debian that boots, Python, make and git.
_HAS = ("systemd-sysv", "dbus", "python3", "make", "git")
# What its package index has, for the lab's tools to be installed from.
_CAN_GET = ("mmdebstrap", "iproute2", "util-linux", "mount", "e2fsprogs")
_DEBS = "srv/debs"
SOURCES = f"deb [trusted=yes] file:/{_DEBS} ./\n"
CLONE = "/srv/salt-virt"
_LOOPS = 32


def _build(part):
    part.rmdir()
    get = (
        "chroot $1 apt-get clean; chroot $1 apt-get install -y -qq --no-install-recommends "
        f"--download-only {' '.join(_CAN_GET)}"
    )
    hooks = [
        get,
        f"mkdir $1/{_DEBS}",
        f"mv $1/var/cache/apt/archives/*.deb $1/{_DEBS}",
        "rm -rf $1/var/lib/apt/lists/* $1/etc/machine-id $1/etc/hostname $1/etc/resolv.conf",
        "rm -f $1/etc/apt/sources.list",
    ]
    skipped = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")]
    run(
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--format=dir",
            "--variant=minbase",
            f"--include={','.join(_HAS)}",
            *skipped,
            "--dpkgopt=force-unsafe-io",
            *roots.apt_options(),
            *(f"--customize-hook={hook}" for hook in hooks),
            "bookworm",
            part,
            roots.mirror(),
        ],
        env={**layers.PLAIN, "INITRD": "No"},
    )
    run(["sh", "-euc", "cd $1 && apt-ftparchive packages . >Packages", "sh", part / _DEBS])


def clean_debian():
    """Return the root of a Debian on which nothing was installed for the lab."""
    return layers.ensure("newcomer", [*_HAS, *_CAN_GET, "1"], _build, what="a newcomer's Debian")


def environment(lab):
    """Return the environment in which the command ``lab`` is about this lab."""
    return dict(os.environ, SALTVIRT_LAB_ROOT=str(lab.root), SALTVIRT_LAB_SALT=lab.salt)


@contextmanager
def taken_down(lab):
    """Take a lab down when the block ends, however it ends."""
    try:
        yield
    finally:
        subprocess.run([LAB, "down"], env=environment(lab), check=True)


class Machine:
    """A node as the machine of a user, with a clone of the checkout."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name

    def boot(self):
        """Power the node on with this machine's cache and loop devices, and clone the checkout."""
        folder = self.lab.node_dir(self.name)
        about = json.loads((folder / "node.json").read_text())
        about["shares"].append((str(CACHE), str(CACHE), "rw"))
        (folder / "node.json").write_text(json.dumps(about))
        run(
            [
                "git",
                "-c",
                "safe.directory=*",
                "clone",
                "-q",
                "--no-hardlinks",
                CHECKOUT,
                folder / "seed" / CLONE.lstrip("/"),
            ]
        )
        run([LAB, "on", self.name], env=environment(self.lab))
        control = os.stat("/dev/loop-control").st_rdev
        script = f"mknod /dev/loop-control c {os.major(control)} {os.minor(control)}\n"
        script += "".join(f"mknod /dev/loop{n} b 7 {n}\n" for n in range(_LOOPS))
        self.sh(script)
        return self

    def try_sh(self, script, **environment):
        """Run a script as root would after logging in; return the process, its outputs as one."""
        # The lab in it has the very folder of the lab that it is in: neither takes the other's.
        words = {"HOME": "/root", "SALTVIRT_LAB_ROOT": str(self.lab.root), **environment}
        argv = [
            "systemd-run",
            "--scope",
            "--quiet",
            "--",
            "env",
            f"--chdir={CLONE}",
            *(f"{key}={value}" for key, value in words.items()),
            "sh",
            "-c",
            script,
        ]
        argv = node.enter(node.pid_of(self.lab, self.name), argv)
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def sh(self, script):
        """Run a script as root at the console; it must succeed; return what it printed."""
        return node.inside(node.pid_of(self.lab, self.name), ["sh", "-euc", script])

    def packages(self):
        """Return ``{package: version}`` of what is installed."""
        listed = self.sh("dpkg-query -W -f '${Package}:${Architecture} ${Version} ${Status}\n'")
        rows = [line.split() for line in listed.splitlines()]
        return {row[0]: row[1] for row in rows if row[-1] == "installed"}

    def traces(self):
        """Return what the lab could leave, or change, on the machine, packages apart."""
        prefix = f"SALTVIRT_LAB_ROOT={self.lab.root}; "
        return {what: self.sh(prefix + script).splitlines() for what, script in _TRACES.items()}


_TRACES = {
    "unit files": "systemctl list-unit-files --no-legend",
    # Some services end by themselves when nobody has asked them for a while.
    "running": "systemctl list-units --no-legend --plain --state=running --type=service,socket | "
    "cut -d' ' -f1 | grep -vE '^(libvirtd|virtlogd|polkit|systemd-[a-z]+d)[.]service'",
    "mounts": "sort /proc/self/mounts",
    "links": "tail -n +3 /proc/net/dev | cut -d: -f1 | sort; cat /proc/net/fib_trie; "
    "cut -c1-32,38- /proc/net/if_inet6 | sort; bridge link 2>/dev/null || true",
    "rules": "command -v nft >/dev/null || exit 0; nft --stateless list ruleset",
    "modules": "cut -d' ' -f1 /proc/modules | sort",
    "loops": "losetup --noheadings --list --output BACK-FILE | sort | "
    "grep -F $SALTVIRT_LAB_ROOT/ || true",
    "groups": "cd /sys/fs/cgroup; ls -d */",
    "devices": "ls /dev",
    "files": "ls -d /* /etc/* /usr/lib/systemd/system/* /var/lib/* | grep -v saltvirt-lab",
    # What the kernel counts is left out, as are names of what each network has.
    "sysctls": "cd /proc/sys; find . -type f ! -path './kernel/random/*' ! -name '*-state' "
    "! -name '*-nr' ! -name ns_last_pid ! -path './kernel/pty/nr' "
    "! -name nf_conntrack_count ! -path './fs/quota/*' ! -name '*cap_last_cap' "
    "! -path './kernel/sched_domain/*' -perm /200 -exec grep -sH . {} + | sort",
}
