"""
One of our Salts is asked by somebody whom libvirt does not let do it.

It runs in the Python of that Salt, and takes a job as JSON from standard input: ``folder`` is its
own, ``ours`` the checkout, ``calls`` are steps (see compatkit.py), ``how`` is who asks:

``all``         whom libvirt lets do everything, for comparison;
``read only``   has a connection that is good for reading;
``shut out``    runs as ``nobody``, who may not even reach libvirt's socket.

It prints a list of outcomes, as oneside.py has them.
"""

import json
import os
import pwd
import shutil
import sys
from pathlib import Path

from oneside import Salt, as_text, changed, in_a_process, seen, share_one_connection

import libvirt  # isort: skip


def answer(salt_, job, step):
    """Return the outcome of a call."""
    folder, before, conn = job["folder"], None, None
    if job["how"] == "shut out":
        who = pwd.getpwnam("nobody")
        os.setgid(who.pw_gid)
        os.setgroups([])
        os.setuid(who.pw_uid)
    else:
        for name in ("images", "pool", "empty", "srv", "run", "state", "cache"):
            shutil.rmtree(Path(folder, name), ignore_errors=True)
            Path(folder, name).mkdir()
        shutil.copytree(Path(folder, "files"), folder, dirs_exist_ok=True)
        open_ = libvirt.openReadOnly if job["how"] == "read only" else libvirt.open
        conn = share_one_connection(f"test://{folder}/host.xml", open_)
        before = seen(conn, folder)
    try:
        out = {"return": salt_.call(step)}
    except Exception as error:
        out = {"error": f"{type(error).__name__}: {error}", "kind": type(error).__mro__[1].__name__}
    return {**out, "effects": changed(before, seen(conn, folder)) if conn else {}}


def main():
    """Do the job of standard input."""
    job = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    asked = Salt(job["folder"], job["ours"])
    if job["how"] == "shut out":
        # As they are on a host: the socket's folder, and what root's minion has on record.
        socket = Path(job["folder"], "shut", "libvirt-sock")
        closed = [socket.parent, Path(job["folder"], "state")]
        for path in closed:
            path.mkdir(mode=0o700)
        asked.opts["virt"]["connection"] = {"uri": f"qemu+unix:///system?socket={socket}"}
        for path in (Path(job["folder"]), *Path(job["folder"]).iterdir()):
            if path not in closed:
                os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    outcomes = [in_a_process(lambda step=step: answer(asked, job, step)) for step in job["calls"]]
    json.dump(outcomes, out, default=as_text)


if __name__ == "__main__":
    main()
