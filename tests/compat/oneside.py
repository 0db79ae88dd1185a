"""
One side of a comparison: a Salt with its own virt modules, or with ours, is asked many questions.

It runs in the Python of that Salt, and takes a job as JSON from standard input: ``folder`` is this
side's own, ``ours`` the checkout or None, ``calls`` the questions, each a list of steps of which
the last one is the question. It prints ``{"surface": [function], "outcomes": [outcome]}``.

Every question has a process and a libvirt of its own: the test driver reads the definition of its
host when it is opened, and all of the process share that one connection. So what a step changed is
there in the next, and what a question changed can be looked at afterwards.
"""

import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from xml.etree import ElementTree

from flatxml import flat

# The folder of this file has nothing for Salt, and names of its own.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

import libvirt  # noqa: E402
import salt.config  # noqa: E402
import salt.loader  # noqa: E402

GRAINS = {
    "fqdn": "host1.example",
    "id": "host1",
    "virtual": "physical",
    "os_family": "Debian",
    "osarch": "amd64",
    "kernel": "Linux",
    "ps": "ps -efHww",
}
# What calls this family as others do.
THIRD_PARTY = str(Path(__file__).parent / "thirdparty")
# The files that this family had, and that one, by the loader that has them.
FILES = {
    "modules": ("virt", "seed", "guestfs", "qemu_nbd", "qemu_img"),
    "states": ("virt", "resources"),
    "runners": ("virt",),
    "engines": ("libvirt_events",),
    "clouds": ("libvirt",),
    "output": ("virt_query",),
    "pillar": ("libvirt", "virtkey"),
}
# What the test driver has not, and 3006's modules cannot do without: as QEMU's driver says it.
POOL_TYPES = "fs netfs logical disk iscsi iscsi-direct scsi mpath sheepdog rbd gluster zfs".split()
OTHER_POOLS = "".join(f'<pool type="{one}" supported="yes"/>' for one in POOL_TYPES)
POOL_CAPABILITIES = f"""
<storagepoolCapabilities>
  <pool type="dir" supported="yes">
    <volOptions>
      <defaultFormat type="raw"/>
      <enum name="targetFormatType"><value>raw</value><value>qcow2</value></enum>
    </volOptions>
  </pool>
  {OTHER_POOLS}
  <pool type="vstorage" supported="no"/>
</storagepoolCapabilities>
"""


def options(folder, ours):
    """Return the options of a minion, and of salt-cloud, that reads nothing of this machine."""
    opts = salt.config.minion_config(None)
    uri = f"test://{folder}/host.xml"
    opts.update(
        id="host1",
        root_dir=folder,
        cachedir=f"{folder}/cache",
        pki_dir=f"{folder}/pki",
        sock_dir=f"{folder}/run",
        extension_modules=f"{folder}/none",
        module_dirs=[THIRD_PARTY, *([ours] if ours else [])],
        file_client="local",
        file_roots={"base": [f"{folder}/srv"]},
        grains=dict(GRAINS),
        virt={"connection": {"uri": uri}, "images": f"{folder}/images"},
        providers={"here": {"libvirt": {"driver": "libvirt", "url": uri, "profiles": {}}}},
    )
    if ours:
        opts["virt"]["state_dir"] = f"{folder}/state"
    return opts


class Salt:
    """A Salt's loaders."""

    def __init__(self, folder, ours):
        self.opts = opts = options(folder, ours)
        utils = salt.loader.utils(opts)
        modules = salt.loader.minion_mods(opts, utils=utils)
        self.loaders = {
            "modules": modules,
            "states": salt.loader.states(opts, modules, utils, {}),
            "runners": salt.loader.runner(opts, utils=utils),
            "engines": salt.loader.engines(opts, modules, {}, utils),
            "clouds": salt.loader.clouds(opts),
            "output": salt.loader.outputters(opts),
            "pillar": salt.loader.pillars(opts, modules),
        }

    def surface(self):
        """Return the functions of the family, as ``KIND/FILE.FUNCTION``, and the outputters."""
        return sorted(
            f"{kind}/{name}"
            for kind, files in FILES.items()
            for name in self.loaders[kind]
            if name.split(".")[0] in files
        )

    def call(self, step):
        """Call one function; return what it returned."""
        kind, function = step["function"].split("/")
        self.loaders["states"].opts["test"] = step["test"]
        return self.loaders[kind][function](*step["args"], **step["kwargs"])


def share_one_connection(uri, open_=libvirt.open):
    """Let all who open libvirt get the same connection, and nobody close it."""
    conn = open_(uri)
    libvirt.virConnect.getStoragePoolCapabilities = lambda self, flags=0: POOL_CAPABILITIES
    libvirt.virNetwork.DHCPLeases = lambda self, mac=None, flags=0: []
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virConnect.close = lambda self: 0
    libvirt.open = libvirt.openReadOnly = lambda *_given: conn
    libvirt.openAuth = lambda *_given: conn
    return conn


def _of_xml(text):
    return flat(ElementTree.fromstring(text))


def _domain(domain):
    snapshots = {one.getName(): _of_xml(one.getXMLDesc(0)) for one in domain.listAllSnapshots()}
    live = {"live": _of_xml(domain.XMLDesc(0))} if domain.isActive() else {}
    return {
        **live,
        "state": domain.state()[0],
        "autostart": domain.autostart(),
        "persistent": domain.isPersistent(),
        "snapshots": snapshots,
        "current": domain.snapshotCurrent().getName() if domain.hasCurrentSnapshot() else "",
        "definition": _of_xml(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)),
    }


def _kept(thing):
    flags = {
        "active": thing.isActive(),
        "autostart": thing.autostart(),
        "persistent": thing.isPersistent(),
    }
    return {**flags, "definition": _of_xml(thing.XMLDesc(0))}


def _pool(pool):
    volumes = pool.listAllVolumes() if pool.isActive() else ()
    return {
        **_kept(pool),
        "volumes": {volume.name(): _of_xml(volume.XMLDesc(0)) for volume in volumes},
    }


def seen(conn, folder):
    """Return all there is on the host, and the files in the folder."""
    things = {f"VM {one.name()}": _domain(one) for one in conn.listAllDomains()}
    things |= {f"network {one.name()}": _kept(one) for one in conn.listAllNetworks()}
    things |= {f"pool {one.name()}": _pool(one) for one in conn.listAllStoragePools()}
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    ignored = ("cache/", "state/", "run/", "var/lib/salt-virt-options/")
    names = (str(path.relative_to(folder)) for path in files)
    return {**things, "files": {name: "" for name in names if not name.startswith(ignored)}}


def changed(before, after):
    """Return what differs of two nested mappings; what has gone is ``"gone"``."""
    out = {key: "gone" for key in before.keys() - after.keys()}
    for key, value in after.items():
        was = before.get(key)
        if isinstance(value, dict) and isinstance(was, dict):
            value = changed(was, value)
            if value:
                out[key] = value
        elif value != was:
            out[key] = value
    return out


def answer(salt_, folder, steps):
    """Return the outcome of a question; what it changed is in ``effects``."""
    for name in ("images", "pool", "empty", "srv", "run", "state", "cache"):
        shutil.rmtree(Path(folder, name), ignore_errors=True)
        Path(folder, name).mkdir()
    shutil.copytree(Path(folder, "files"), folder, dirs_exist_ok=True)
    conn = share_one_connection(f"test://{folder}/host.xml")
    *first, question = steps
    for step in first:
        salt_.call(step)
    before = seen(conn, folder)
    try:
        out = {"return": salt_.call(question)}
    except Exception as error:
        where = traceback.format_exception(error)[-3:]
        out = {"error": f"{type(error).__name__}: {error}", "where": "".join(where)}
    return {**out, "effects": changed(before, seen(conn, folder))}


def in_a_process(work):
    """Do something in a process of its own and return what it returns, as JSON has it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            out = work()
        except BaseException:
            out = {"broken": traceback.format_exc()}
        with os.fdopen(writing, "w") as pipe:
            json.dump(out, pipe, default=as_text)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def as_text(value):
    """Return what JSON cannot say as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def as_yaml_has_them(mapping):
    """Return a mapping whose numbers are keys again, which JSON has as texts."""
    return {int(key) if key.isdecimal() else key: value for key, value in mapping.items()}


def main():
    """Do the job of standard input."""
    job = json.load(sys.stdin, object_hook=as_yaml_has_them)
    # What modules print is not the answer.
    out, sys.stdout = sys.stdout, sys.stderr
    asked = Salt(job["folder"], job["ours"])
    surface = asked.surface()
    outcomes = [
        in_a_process(lambda steps=steps: answer(asked, job["folder"], steps))
        for steps in job["calls"]
    ]
    json.dump({"surface": surface, "outcomes": outcomes}, out)


if __name__ == "__main__":
    main()
