"""Firewall rules in a network namespace of their own, loaded by the real nft and iptables."""

import os
import subprocess

import pytest
from salt.exceptions import CommandExecutionError
from saltvirt.network.firewall import backends

PORTS = [16514, "49152-49215"]
PEERS = ["10.0.0.2", "fd00::2"]
LISTED = {"nftables": ["nft", "list", "ruleset"], "iptables": ["iptables", "-S"]}


class Space:
    """A network namespace that lives as long as its first process."""

    # Without root it takes a user namespace too, which maps this user to root.
    _USER = [] if os.geteuid() == 0 else ["-U"]
    MAKE = ["unshare", *_USER, *(["-r"] if _USER else []), "-n", "sh", "-c", "echo; exec sleep 900"]

    def __init__(self, process):
        user_options = [*self._USER, "--preserve-credentials"] if self._USER else []
        self._enter = ["nsenter", "-t", str(process.pid), *user_options, "-n"]

    def run_all(self, argv, **_options):
        """Run a command as Salt's ``cmd.run_all`` does."""
        try:
            process = subprocess.run(
                [*self._enter, *argv], capture_output=True, text=True, check=False
            )
        except OSError as exc:
            raise CommandExecutionError(str(exc)) from exc
        return {"retcode": process.returncode, "stdout": process.stdout, "stderr": process.stderr}

    def listed(self, backend):
        """Return all rules that are there."""
        return self.run_all(LISTED[backend])["stdout"]


class Failing:
    """A namespace in which the last step of a command fails; steps that only read succeed."""

    def __init__(self, space, words):
        self._space, self._words = space, words

    def run_all(self, argv, **options):
        """Run a command as Salt's ``cmd.run_all`` does."""
        is_meant = self._words in " ".join(argv) and not {"-c", "--test"} & set(argv)
        if is_meant and (self._words != "/nft" or "-f" in argv) and self._words:
            self._words = ""  # the undo succeeds
            return {"retcode": 1, "stdout": "", "stderr": "out of luck"}
        return self._space.run_all(argv, **options)

    def listed(self, backend):
        """Return all rules that are there."""
        return self._space.listed(backend)


def texts(folder):
    """Return the files of a folder."""
    return {path.name: path.read_text() for path in folder.glob("*")}


def all_rules(space):
    """Return all rules of all programs; the order of the tables does not matter."""
    tables = f"\n{space.listed('nftables')}".split("\ntable ")
    sorted_tables = sorted(table.strip() for table in tables if table.startswith("inet "))
    chains = [space.run_all([program, "-S"])["stdout"] for program in ("iptables", "ip6tables")]
    return [*sorted_tables, *chains]


def without_table(work):
    """Return the rules of a backend without the table of forwarded packets."""
    return getattr(work, "backend", work)


def rules_of(space, backend, ports=PORTS, peers=PEERS, name="salt_virt"):
    """Return the rules of a backend in the namespace."""
    backend_rules = backends.of(backend, {"cmd.run_all": space.run_all}, name, ports, peers)
    if not backend_rules.is_installed or space.run_all(LISTED[backend])["retcode"]:
        pytest.skip(f"{backend_rules.program} is not installed, or this kernel has nothing for it")
    return backend_rules
