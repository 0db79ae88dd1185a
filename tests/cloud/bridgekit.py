"""Bare hosts whose network is changed, and a connection of theirs that is open meanwhile."""

import subprocess
from contextlib import contextmanager

from labkit import node

_LISTEN = """import socket
with socket.create_server(("10.77.0.1", 7777)) as server:
    print("listening", flush=True)
    server.settimeout(60)
    with server.accept()[0].makefile() as lines:
        print(lines.read())
"""
_SEND = """import socket, sys, time
with socket.create_connection(("10.77.0.1", 7777), timeout=20) as link:
    for number in range(int(sys.argv[1])):
        link.sendall(f"{number}\\n".encode())
        time.sleep(0.1)
"""


@contextmanager
def bare(cloud, *names):
    """Have bare hosts for the block, their minions' modules synced."""
    for name in names:
        cloud.lab_command("bare", name)
        assert cloud.salt(name, "saltutil.sync_all").code == 0
        done = cloud.salt(name, "pip.install", "pyroute2")
        assert done.code == 0, done.out
    yield
    for name in names:
        cloud.lab_command("remove", name)


@contextmanager
def open_connection(cloud, host, numbers):
    """Send numbers to the master, ten a second, while the block runs; all of them must arrive."""

    def python(name, *words):
        argv = node.enter(cloud.pids[name], ["python3", "-c", *words])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    with python("master", _LISTEN) as server:
        assert server.stdout.readline() == "listening\n"
        with python(host, _SEND, str(numbers)) as client:
            yield
            assert client.wait(timeout=60) == 0
        received = server.stdout.read()
    assert received.split() == [str(n) for n in range(numbers)]
