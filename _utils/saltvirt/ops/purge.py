"""Remove a VM with everything that was made for it, and never anything else."""

import json
import logging
import os
from pathlib import Path

from saltvirt import arguments, files, locks
from saltvirt.errors import NameTaken, NoSuchVm, StorageError
from saltvirt.image import cache
from saltvirt.kvm import lifecycle, query
from saltvirt.ops import claims, storage
from saltvirt.spec import console_log
from saltvirt.xml import read

log = logging.getLogger(__name__)


def purge(conn, settings, name, *, dirs=False, removables=False):
    """
    Remove a VM: stop it, forget it, remove its disks, seed and console log.

    A disk that another VM uses, or that another VM's disk is based on, stays, and so does
    every cached image. ``removables`` removes cdrom and floppy images too; ``dirs`` removes the
    folders that are empty afterwards.
    """
    with claims.gate(settings):
        if name in claims.live(settings) and not _has_come(conn, settings, name):
            raise NameTaken(f"VM {name!r} is being built on this host; wait until that is over")
        unfinished = claims.known(settings, name)
        if not lifecycle.is_defined(conn, name):
            if unfinished is None:
                raise NoSuchVm(name)
            clean(conn, settings, unfinished)
            cache.sweep(settings)
            return
        if unfinished is not None:
            claims.drop(settings, name)
    paths = own_files(conn, settings, name, removables)
    lifecycle.destroy(conn, name)
    lifecycle.undefine(conn, name)
    remove_log(name)
    _remove(paths)
    if dirs:
        _remove_empty(settings, paths)


def _has_come(conn, settings, name):
    """Return whether a VM that another host was to send is here, and nobody has noted it."""
    is_here = lifecycle.is_defined(conn, name) and not lifecycle.is_arriving(conn, name)
    return is_here and claims.expected(settings, name) is not None


def own_files(conn, settings, name, removables):
    """Return the files that belong to this VM alone."""
    root = read.domain(lifecycle.xml(conn, name))
    used = lifecycle.disks_in_use(conn, but=name)
    out = []
    for disk in read.disk_sources(root):
        path = disk["path"]
        is_removable = disk["device"] in ("cdrom", "floppy")
        if path is None or disk["type"] != "file" or (is_removable and not removables):
            continue
        if not _is_shared(settings, path, used):
            out.append(path)
    return out


def _is_shared(settings, path, used):
    base = os.path.realpath(os.path.join(settings.images, "base"))
    real = os.path.realpath(path)
    return real.startswith(f"{base}/") or path in used or real in used


def _remove(paths):
    failed = []
    for path in paths:
        try:
            storage.remove(path)
        except OSError as exc:
            failed.append(f"{path} ({exc.strerror})")
    if failed:
        raise StorageError(f"the VM is gone, but these files are not: {', '.join(failed)}")


def _remove_empty(settings, paths):
    for folder in {Path(path).parent for path in paths} - {Path(settings.images)}:
        if not any(folder.iterdir()):
            folder.rmdir()


def remove_log(name):
    """Remove a VM's console log and those virtlogd rotated away."""
    log_path = Path(console_log(name))
    if log_path.parent.is_dir():
        for path in (log_path, *(log_path.with_name(f"{log_path.name}.{n}") for n in range(10))):
            storage.remove(path)


def clean_unfinished(conn, settings):
    """Remove what builders that died have left on this host."""
    if claims.stale(settings):
        with claims.gate(settings):
            for claim in claims.stale(settings).values():
                clean(conn, settings, claim)
    cache.sweep(settings)


def clean(conn, settings, claim):
    """Remove what a claim lists, unless its VM is here after all."""
    name = claim["name"]
    if lifecycle.is_defined(conn, name):
        if not claim["defines"] or query.state(conn, name) != "shutdown":
            # It runs: all of it was built, only the note was not taken away in time.
            claims.drop(settings, name)
            return
        lifecycle.undefine(conn, name)
    used = lifecycle.disks_in_use(conn)
    paths = [path for path in claim["paths"] if not _is_shared(settings, path, used)]
    log.warning("removing what an interrupted virt.init of %s left: %s", name, paths)
    _remove(paths)
    if claim["defines"] or "until" in claim:
        remove_log(name)
    claims.drop(settings, name)


def evacuated(settings, vms):
    """Note VMs that an evacuation moved away (None: forget); return all as ``{name: host}``."""
    path = Path(settings.state_dir) / "evacuated.json"
    with locks.held(Path(settings.state_dir) / "evacuated.lock"):
        known = json.loads(path.read_text()) if path.exists() else {}
        merged = {name: host for name, host in {**known, **vms}.items() if host}
        if merged:
            files.write(path, json.dumps(merged).encode())
        else:
            path.unlink(missing_ok=True)
    return merged


def set_maintenance(settings, state):
    """Set or clear the flag that keeps new VMs away from this host; return the new state."""
    is_on = arguments.on_off("state", state)
    flag = Path(settings.state_dir) / "maintenance"
    if is_on:
        flag.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flag.touch()
    else:
        flag.unlink(missing_ok=True)
    return is_on
