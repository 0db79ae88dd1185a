"""Whoever follows a page of docs/ at the master of a lab: types its lines, writes its files."""

import re
import subprocess

from labkit import node

# What later lines of the same reader use.
_ASSIGNED = re.compile(r"\w+=\S+$")
_SAID, _CODE = "-- said by --", "-- ended with --"


class Reader:
    """Whoever follows a page at the master of a lab, word by word but for ``instead``."""

    def __init__(self, lab, page, instead):
        self.lab, self.page, self.instead = lab, page, instead
        self.printed, self.seconds, self._assigned = {}, {}, []

    def folder(self):
        """Return the master's files, as this machine sees them."""
        return node.root(self.lab, "master")

    def host_of(self, name):
        """Return the host that has a VM."""
        return next(
            host
            for host in ("hyper1", "hyper2")
            if name in self._virsh(host, "-q", "list", "--all", "--name").split()
        )

    def state_of(self, host, name):
        """Return a VM's state in libvirt's words."""
        return self._virsh(host, "domstate", name).strip()

    def _virsh(self, host, *words):
        return node.inside(node.pid_of(self.lab, host), ["virsh", *words])

    def follow(self, block):
        """Write the file of a block, or type its lines; return False if it is neither."""
        if block.mark == "not run" or block.kind not in ("sh", "yaml"):
            return False
        if block.kind == "sh":
            self.type(block.body)
            return True
        path = self.folder() / block.file.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._replaced(block.body))
        return True

    def type(self, text):
        """Type lines into one shell; each must succeed. Note what each has printed."""
        lines = [line for line in text.splitlines() if line.strip()]
        script = "".join(f"{self._replaced(line)}\n" for line in self._assigned)
        script += "".join(
            f"echo '{_SAID}'; begin=$EPOCHREALTIME\n{self._replaced(line)}\n"
            f"code=$?; echo; echo '{_CODE}' $begin $EPOCHREALTIME; test $code = 0 || exit 1\n"
            for line in lines
        )
        self._assigned += [line for line in lines if _ASSIGNED.match(line)]
        argv = node.enter(node.pid_of(self.lab, "master"), ["bash", "-c", script])
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        printed = done.stdout.split(f"{_SAID}\n")[1:]
        for line, answer in zip(lines, printed, strict=False):
            self.printed[line], _mark, times = answer.rpartition(_CODE)
            begin, end = map(float, times.split())
            self.seconds[line] = end - begin
        assert done.returncode == 0, f"{lines[len(printed) - 1]}:\n{printed[-1]}{done.stderr}"

    def _replaced(self, text):
        for old, new in self.instead.items():
            text = text.replace(old, new)
        return text
