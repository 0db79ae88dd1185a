"""What a VM is made of when it moves, and how a host makes ready to take it."""

import hashlib
import itertools
import os
import time
from pathlib import Path

from saltvirt import undo
from saltvirt.errors import ClaimRefused, StorageError, VirtError
from saltvirt.files import private
from saltvirt.image import cache, tool
from saltvirt.kvm import host, lifecycle, pools, query
from saltvirt.ops import claims, departures, inspect, purge, storage
from saltvirt.placement import fit, generation, moves
from saltvirt.xml import newer, read

_POOL = "salt-virt-incoming"
_ARRIVAL_S = 8
_SWTPM = "/var/lib/libvirt/swtpm"


def facts(conn, settings, name=None):
    """
    Return what another host must know to take VMs, as plain data by their names.

    name
        Only this one.

    ``disks`` are ``{target, path, format, device, how, base, image, ...}``; ``how`` is ``copy``
    (libvirt mirrors it), ``push`` (sent as a file) or ``shared``; ``base`` is the digest of the
    cached image below an overlay, ``image`` what is known of that.
    """
    tags = {"snapshots": lifecycle.with_snapshots(conn), "saved": lifecycle.saved(conn),
            "autostart": lifecycle.autostarted(conn), "host_cpu": host.own_cpu(conn),
            "qemu": host.versions(conn)["qemu"]}  # fmt: skip
    return {row["name"]: _facts(settings, row, tags)
            for row in query.rows(conn, name, with_next=True)}  # fmt: skip


def _facts(settings, row, tags):
    name, root = row["name"], read.domain(row["xml"])
    # The definition goes too, and may differ from what runs: the target must know both.
    both = [root, read.domain(row["next_xml"])] if row["next_xml"] else [root]
    machines = [one.find("os/type").get("machine") for one in both]
    is_running = row["state"] in ("running", "paused")
    disks = [_disk(settings, source, is_running) for source in read.disk_sources(root)]
    ours = read.ours(root)
    return {
        "name": name,
        "uuid": root.findtext("uuid"),
        "state": row["state"],
        "vcpus": row["max_vcpus"],
        "memory_mib": row["max_memory_kib"] // 1024,
        "disks": [disk for disk in disks if disk["how"] != "absent"],
        "images": settings.images,
        "affinity": ours["affinity"],
        "anti_affinity": ours["anti_affinity"],
        "stay": ours["stay"],
        "domain_type": root.get("type"),
        "arch": root.find("os/type").get("arch"),
        "machine": machines[0],
        "next_machine": machines[-1] if machines[-1] != machines[0] else None,
        "newer": _union(newer.newer(one) for one in both),
        **_cpu(root, tags, is_running),
        **read.links(root),
        "obstacles": [*_obstacles(name, root, tags), *_unreadable(disks),
                      *([] if is_running else _left_behind(settings, root))],
        "files": _union(read.boot_files(one) for one in both),
        "autostart": name in tags["autostart"],
    }


def _union(lists):
    """Return what is in any of the lists, once, in their order."""
    out = []
    for one in itertools.chain.from_iterable(lists):
        if one not in out:
            out.append(one)
    return out


def _cpu(root, tags, is_running):
    """
    Return what a host must have so that the guest sees the same CPU there.

    ``cpu_qemu`` is the QEMU all of whose CPU, emulated or the host's, a guest was started with: its
    features are nowhere in the XML, and an older QEMU would take them away under the running guest.
    """
    mode, cpu = read.cpu(root)
    is_emulated = root.get("type") == "qemu"
    # A stopped one gets what the target has, when it is started there.
    is_all = is_running and mode in ("maximum", "host-passthrough")
    is_hosts = is_all and not (mode == "maximum" and is_emulated)
    # libvirt starts one that is not to be checked anywhere, without what QEMU lacks.
    is_checked = is_running or root.find("cpu[@check='none']") is None
    return {"cpu": cpu if mode == "custom" and is_checked else None,
            "host_cpu": tags["host_cpu"] if is_hosts else None,
            "cpu_qemu": (read.ours(root)["cpu_qemu"] or tags["qemu"]) if is_all else None}


def _is_declared(settings, path):
    """Return whether every host has a file, says ``virt:shared_paths``."""
    return any(path.startswith(f"{folder.rstrip('/')}/") for folder in settings.shared_paths)


def _disk(settings, source, is_running):
    path = source["path"]
    out = {"target": source["target"], "path": path, "format": source["format"],
           "device": source["device"], "how": "absent", "base": None, "image": None}  # fmt: skip
    if path is None:
        return out
    is_declared = _is_declared(settings, path)
    if source["type"] != "file" or is_declared:
        return {**out, "how": "shared" if is_declared or source["type"] == "network" else "device"}
    sizes = storage.measure(path, source["format"])
    if sizes is None:
        return {**out, "how": "missing"}
    is_readonly = source["is_readonly"] or source["device"] != "disk"
    how = "copy" if is_running and not is_readonly else "push"
    base = cache.digest_of(settings, sizes["backing"])
    return {**out, "how": how, "virtual_bytes": sizes["virtual"], "actual_bytes": sizes["actual"],
            "base": base, "image": cache.note(settings, base), "backing": sizes["backing"],
            "size_bytes": os.path.getsize(path)}  # fmt: skip


def _obstacles(name, root, tags):
    """Yield why a VM cannot be moved to any host."""
    if name in tags["snapshots"]:
        yield "it has snapshots, which libvirt does not move; remove them first"
    if name in tags["saved"]:
        # It would stay here, and be resumed over changed disks when the VM comes back.
        yield ("it has a saved state, which libvirt does not move; start it, or drop that state "
               f"with virsh managedsave-remove {name}")  # fmt: skip
    if root.find("devices/hostdev") is not None or root.find(
        "devices/interface[@type='hostdev']"
    ) is not None:
        yield "it has a device of this host, which cannot move; detach it first"
    if root.find("sysinfo/entry[@file]") is not None:
        yield ("it runs for the first time since it was seeded by credentials, which are on this "
               "host; stop and start it once")  # fmt: skip


def _unreadable(disks):
    for disk in disks:
        if disk["how"] == "missing":
            yield f"its disk {disk['path']} is missing or cannot be read"
        elif disk["how"] == "device":
            yield (f"its disk {disk['path']} is a device of this host; declare it in "
                   "virt:shared_paths if every host has it")  # fmt: skip
        elif disk.get("backing") and not disk["base"]:
            yield (f"its disk {disk['path']} is based on {disk['backing']}, no cached image; "
                   "declare its folder in virt:shared_paths, or flatten the disk")  # fmt: skip


def _tpm_state(root, backend):
    """Return where an emulated TPM has its state: where libvirt puts it, unless it is told."""
    source = backend.find("source")
    path = source.get("path") if source is not None else None
    return path or f"{_SWTPM}/{root.findtext('uuid')}"


def _left_behind(settings, root):
    """Yield what a stopped VM would lose; of a running one QEMU takes it along."""
    path = read.firmware_variables(root)
    # libvirt makes the file when the VM is first started; until then there is nothing to lose.
    if path and not _is_declared(settings, path) and os.path.exists(path):
        yield (f"its firmware's variables are in {path}, which does not move; start it and move it "
               "live, or declare the folder in virt:shared_paths if all have it")  # fmt: skip
    backend = root.find("devices/tpm/backend[@type='emulator']")
    # The same holds for the state of a TPM.
    if backend is not None and os.path.exists(_tpm_state(root, backend)):
        yield ("its emulated TPM has its state on this host, which does not move; start it and "
               "move it live")  # fmt: skip


def check(conn, settings, about, info=None):
    """
    Return why this host cannot take a VM; empty if it can. Nothing is changed.

    info
        What :func:`saltvirt.ops.inspect.host_info` has said, if it was asked already.
    """
    info = info or inspect.host_info(conn, settings)
    why = list(fit.reasons(info, moves.need(about)))
    if settings.images != about["images"]:
        why.append(f"its image folder is {settings.images}, not {about['images']}; VMs move only "
                   "between hosts with the same virt:images")  # fmt: skip
    why += _libvirts_reasons(conn, about, info)
    why += [f"there is no file {path} there" for path in about["files"] if not Path(path).exists()]
    return why + [reason for disk in about["disks"] for reason in _disk_reasons(settings, disk)]


def _libvirts_reasons(conn, about, info):
    """Yield what libvirt itself says of machine type and CPU that the survey does not tell."""
    unknown = [one for one in (about.get("machine"), about.get("next_machine"))
               if one and not host.has_machine(conn, {**about, "machine": one})]  # fmt: skip
    if not unknown:
        lacking = host.why_not_cpu(conn, about)
        yield from [lacking] if lacking else []
    elif not list(generation.machine(info, moves.need(about))):
        yield (f"its machine type {unknown[0]} is not known there "
               f"(QEMU {host.versions(conn)['qemu']})")  # fmt: skip


def unfit(conn, about):
    """Return why libvirt and QEMU behind a connection, also another host's, cannot take a VM."""
    found = host.capabilities(conn)
    info = {"versions": host.versions(conn), "cpu": {"arch": found["arch"]},
            "machines": generation.known(found["guests"], found["arch"])}  # fmt: skip
    return [*generation.reasons(info, moves.need(about)), *_libvirts_reasons(conn, about, info)]


def check_all(conn, settings, abouts):
    """Return ``{name: why this host cannot take it}`` of VMs, those left out that it can take."""
    info = inspect.host_info(conn, settings)
    found = {name: check(conn, settings, about, info) for name, about in abouts.items()}
    return {name: why for name, why in found.items() if why}


def _disk_reasons(settings, disk):
    path = Path(disk["path"])
    if disk["how"] == "shared":
        if str(path).startswith("/") and not path.exists():
            yield f"the shared disk {path} is not there"
    elif path.exists() and not _is_medium(disk):
        yield f"a file {path} is there already"
    elif not path.parent.is_dir() and path.parent != Path(settings.images):
        yield f"there is no folder {path.parent} there"


def _is_medium(disk):
    """Return whether a disk is a cdrom or floppy image, which hosts may well have in common."""
    return disk["device"] in ("cdrom", "floppy")


def prepare(context, conn, about, limit_s):
    """
    Claim room for a VM that comes, and make the files that it will be written to.

    limit_s
        For how long they are kept if the VM does not come.

    Returns ``{"images": {digest: path}, "present": [path]}``: images that this host does not have
    and cannot get, so that the other host sends them there and :func:`resume` goes on; and media
    that are here already.
    """
    settings, wanted, present = context.settings, moves.need(about), _present(about)
    departures.settle(conn, settings)
    purge.clean_unfinished(conn, settings)

    def refuse():
        why = check(conn, settings, about)
        if why:
            raise ClaimRefused(wanted.name, why)

    with undo.on_sigterm(), undo.on_failure() as steps:
        until = time.time() + limit_s
        with claims.claimed(settings, wanted, refuse, until=until) as claim:
            steps.then(claims.drop, settings, wanted.name)
            missing = _bases(context, about, claim, steps)
            made = [] if missing else _files(settings, about, claim, steps)
            _open(conn, wanted.name, [*missing.values(), *made])
    return {"images": missing, "present": present}


def _present(about):
    return [d["path"] for d in about["disks"] if _is_medium(d) and Path(d["path"]).exists()]


def resume(context, conn, about):
    """Go on with :func:`prepare` when the missing images have come; each is checked first."""
    settings, name, present = context.settings, about["name"], _present(about)
    with (undo.on_sigterm(), undo.on_failure() as steps,
          claims.reopened(settings, name) as claim):  # fmt: skip
        for digest in {d["base"] for d in about["disks"] if d["base"]}:
            cache.admit_incoming(settings, digest)
        _open(conn, name, _files(settings, about, claim, steps))
    return {"images": {}, "present": present}


def _open(conn, name, paths):
    """Let the other host write these files through libvirt."""
    for folder in sorted({str(Path(path).parent) for path in paths}):
        mark = hashlib.sha256(folder.encode()).hexdigest()[:8]
        pools.make_reachable(conn, f"{_POOL}-{name}-{mark}", folder)


def _bases(context, about, claim, steps):
    missing = {}
    for disk in about["disks"]:
        digest = disk["base"]
        if disk["how"] == "shared" or not digest or digest in missing:
            continue
        image = cache.note(context.settings, digest) or disk["image"]
        if cache.find(context.settings, digest) or cache.fetch_same(context, image, digest):
            continue
        path = cache.incoming_path(context.settings, digest)
        claim.will_make(path)
        steps.then(storage.remove, path)
        _placeholder(path, disk["image"]["file_bytes"])
        missing[digest] = str(path)
    return missing


def _placeholder(path, size):
    try:
        with open(path, "xb", opener=private) as handle:
            handle.truncate(size)
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def _files(settings, about, claim, steps):
    made = []
    for disk in about["disks"]:
        path = Path(disk["path"])
        if disk["how"] == "shared" or (_is_medium(disk) and path.exists()):
            continue
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        claim.will_make(path)
        steps.then(storage.remove, path)
        if disk["how"] == "push":
            _placeholder(path, disk["size_bytes"])
        else:
            base = cache.find(settings, disk["base"]) if disk["base"] else None
            backing = (base.path, base.format) if base else ()
            tool.create(path, disk["virtual_bytes"], disk["format"], *backing)
            path.chmod(0o600)
        made.append(str(path))
    return made


def forget(conn, settings, name):
    """
    Give up what :func:`prepare` made, unless the VM has come; return whether the VM is here.

    On the host that a VM has left it removes what a killed job left there.
    """
    deadline = time.monotonic() + _ARRIVAL_S
    while lifecycle.is_arriving(conn, name):
        if time.monotonic() > deadline:
            raise VirtError(f"VM {name!r} is still arriving here; end that first, with "
                            "virt.migrate_cancel on the host that sends it")  # fmt: skip
        time.sleep(0.2)
    departures.settle(conn, settings)
    pools.make_unreachable(conn, f"{_POOL}-{name}-")
    with claims.gate(settings):
        claim = claims.expected(settings, name)
        if claim:
            purge.clean(conn, settings, claim)
    return lifecycle.is_defined(conn, name)


def seed(disks, force):
    """Make empty disks for a VM that comes, as 3006 did; one that is there is replaced by force."""
    for target, disk in sorted(disks.items()):
        path, backing = Path(disk["file"]), disk.get("backing file") or {}
        if path.exists() and not force:
            raise StorageError(f"disk {target}: {path} is there already; force=True replaces it")
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        below = (backing["file"], backing["file format"] or "qcow2") if backing else ()
        path.unlink(missing_ok=True)
        tool.create(path, disk["virtual size"], disk["file format"], *below)
        path.chmod(0o600)


def image_paths(settings, images):
    """Return ``{path here: path there}`` of images by their digests."""
    found = {digest: cache.find(settings, digest) for digest in images}
    lost = [digest for digest, image in found.items() if image is None]
    if lost:
        raise StorageError(f"the image {lost[0][:16]} is not on this host any more")
    return {found[digest].path: there for digest, there in images.items()}
