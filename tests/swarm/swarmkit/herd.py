"""
The hosts' processes: all that they share is loaded once, then they are forked.

One that dies is begun anew, as systemd does with a minion, unless its host is off.
"""

import copy
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback

import salt.cache
import salt.channel.client
import salt.config
import salt.crypt
import salt.loader
import salt.minion
import salt.payload
import salt.pillar
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import migrate

from swarmkit import clock, conf, guests, loops, peer, work
from swarmkit.settings import OWN, ROOT, Spec
from swarmkit.standin import connection

OFF = ROOT / "off"
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUTS, _MS_BIND = 0x20000, 0x4000000, 0x1000
_LOOK_S = 0.2
# As many hosts of one process connect at once: a thousand that do ask again before they are heard.
_AT_ONCE = 2
# What is first imported while a host connects would be private to each: 18 MiB.
_SHARED = (
    "salt.channel.server",
    "salt.transport.tcp",
    "salt.transport.zeromq",
    "salt.pillar.git_pillar",
    "salt.utils.channel",
    "salt.utils.event",
    "salt.cache.localfs_key",
    "salt.fileclient",
    "salt.grains.core",
    "salt.matchers.compound_match",
    "multiprocessing.synchronize",
    "cryptography.hazmat.backends.openssl.backend",
)
# Those that hosts are asked for by the runner's commands.
_COMMON = ("test.ping", "virt.signed", "virt.host_info", "virt.init", "event.fire_master")


def _grains(base):
    found = salt.loader.grains({**copy.deepcopy(base), "grains_cache": False})
    found.pop("pid", None)
    return found


def _opts(base, name, grains, spec):
    """Return a host's options; of the base, only what differs is copied: 4 MiB in each."""
    own = {"id": name, "host": name, "nodename": name, "fqdn": name}
    # Salt 3006's own runner asks those that say so.
    theirs = {**grains, **own, "virtual": "physical", "virt_hypervisor": True}
    return {**base, **conf.of_host(name, spec), "grains": theirs}


def _warm(base, grains, spec):
    """Load what all hosts will need, so that they share its memory."""
    for name in _SHARED:
        try:
            importlib.import_module(name)
        except ImportError:  # one of another line of Salt
            continue
    opts = _opts(base, spec.ids[0], grains, spec)
    loaded = work.functions(copy.deepcopy(opts), {}, is_alone=True)
    for name in _COMMON:
        if name not in loaded:
            raise SystemExit(f"this project's {name} cannot be loaded by Salt {spec.salt}")
    _warm_crypto(opts)


def _warm_crypto(opts):
    """Have OpenSSL make its tables, 6 MiB, before the first fork."""
    folder = conf.HOSTS / opts["id"] / "pki"

    def key(kind, name):
        made, path = getattr(salt.crypt, kind), str(folder / name)
        return made.from_file(path) if hasattr(made, "from_file") else made(path)

    key("PrivateKey", "minion.pem").sign(b"x")
    key("PublicKey", "minion.pub").encrypt(b"x")
    aes = salt.crypt.Crypticle({}, salt.crypt.Crypticle.generate_key_string())
    aes.loads(aes.dumps({"a": 1}))


def _live(base, grains, spec, names):
    """Be some hosts."""
    if spec.is_apart:
        clock.follow(*names)
    loop, is_alone = loops.loop(), len(names) == 1
    turn = loop.turn()
    peers = [
        peer.Peer(_opts(base, one, grains, spec), loop, turn, is_alone=is_alone) for one in names
    ]
    for first in range(_AT_ONCE):
        loop.spawn(_up_in_turn, peers[first::_AT_ONCE])
    loop.run()


async def _up_in_turn(peers):
    for one in peers:
        await one.up()


def _be_apart(name):
    """Have a name, and one's own folder where each host has its own: namespaces of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = str(conf.HOSTS / name).encode()
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(own, str(OWN).encode(), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"mount {own}")
    socket.sethostname(name)


def _fork(base, grains, spec, names):
    parent = os.getpid()
    pid = os.fork()
    if pid:
        for name in names:
            # Whole at once: it is read meanwhile.
            new = conf.HOSTS / name / "pid.new"
            new.write_text(str(pid))
            new.replace(conf.HOSTS / name / "pid")
        return pid
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if spec.is_apart:
            _be_apart(*names)
        said = os.open(conf.HOSTS / names[0] / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        _live(base, grains, spec, names)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _tend(base, grains, spec):
    """Begin all hosts, and again those that died."""
    groups, running = {group[0]: group for group in spec.groups}, {}
    while True:
        for first, names in groups.items():
            is_off = any((OFF / name).exists() for name in names)
            if first not in running.values() and not is_off:
                running[_fork(base, grains, spec, names)] = first
        for pid in list(running):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
        time.sleep(_LOOK_S)


def main():
    """Load, warm up, fork, and look after the hosts."""
    spec = Spec.read(sys.argv[1])
    connection.stand_in(connect, migrate)
    base = salt.config.minion_config(
        str(ROOT / "etc/minion"), minion_id="template", cache_minion_id=False
    )
    grains = _grains(base)
    for name in spec.ids:
        guests.fill(name, spec)
    _warm(base, grains, spec)
    gc.collect()
    gc.freeze()
    _tend(base, grains, spec)


if __name__ == "__main__":
    main()
