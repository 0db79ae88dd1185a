"""
A libvirt to which states are applied, and what there is on it; it runs in any Python with Salt.

As a program it takes ``["apply", state, arguments, test]``, ``["world"]`` and so on as lines of
JSON, for the libvirt of the minion that it runs on, and prints each answer. Its arguments are the
folder, and the options of ``virt`` as JSON that are to be others than this minion's. States of
somebody else's, ``resources``, may be in ``FOLDER.d/_states``.
"""

import json
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import libvirt

_MOVING = ("available", "allocation")


class Side:
    """
    One libvirt.

    functions
        ``{state: function}``.
    say_test
        Called with whether what follows is ``test=True``.
    """

    def __init__(self, conn, folder, functions, say_test):
        self.conn, self.folder = conn, Path(folder)
        self.functions, self.say_test = functions, say_test
        libvirt.registerErrorHandler(lambda _context, _error: None, None)

    def apply(self, state, given, test):
        """Apply a state; return what it returned."""
        self.say_test(test)
        text = json.dumps(given).replace("FOLDER", str(self.folder))
        return json.loads(json.dumps(self.functions[state](**json.loads(text))))

    def is_waiting(self, state, _given):
        """Return whether guests were asked to shut down and have not; they are helped then."""
        if state != "stopped":
            return False
        running = [
            one for one in self.conn.listAllDomains() if self._is_ours(one) and one.isActive()
        ]
        for one in running:
            one.destroy()
        return bool(running)

    def _is_ours(self, domain):
        return domain.name().startswith("web")

    def world(self):
        """Return all that a state could change."""
        inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
        conn = self.conn
        return {
            "domains": {
                one.name(): [
                    one.state()[0],
                    one.isPersistent(),
                    one.autostart(),
                    one.XMLDesc(inactive if one.isPersistent() else 0),
                    sorted(snapshot.getName() for snapshot in one.listAllSnapshots()),
                    one.snapshotCurrent().getName() if one.hasCurrentSnapshot() else None,
                ]
                for one in conn.listAllDomains()
                if self._is_ours(one)
            },
            "networks": {
                one.name(): [one.isActive(), one.autostart(), one.XMLDesc(0)]
                for one in conn.listAllNetworks()
            },
            "pools": {
                one.name(): [
                    one.isActive(),
                    one.autostart(),
                    _lasting(one.XMLDesc(0)),
                    sorted(v.name() for v in one.listAllVolumes()) if one.isActive() else [],
                ]
                for one in conn.listAllStoragePools()
            },
            "files": sorted(
                str(path) for path in self.folder.rglob("*") if "state" not in path.parts
            ),
        }

    def reset(self):
        """Have nothing there."""
        for domain in filter(self._is_ours, self.conn.listAllDomains()):
            _remove(domain)
        kinds = (
            (self.conn.listAllNetworks(), ("n1", "n2")),
            (self.conn.listAllStoragePools(), ("p1", "p2")),
        )
        for listed, names in kinds:
            for one in (one for one in listed if one.name() in names):
                if one.isActive():
                    one.destroy()
                if one.isPersistent():
                    one.undefine()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)


def _remove(domain):
    if domain.isActive():
        domain.destroy()
    for snapshot in domain.listAllSnapshots():
        snapshot.delete(0)
    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)


def _lasting(text):
    """Return the XML of a pool without what its file system has of room at the moment."""
    root = ElementTree.fromstring(text)
    for name in _MOVING:
        for one in root.findall(name):
            root.remove(one)
    return ElementTree.tostring(root, encoding="unicode")


def _of_minion(folder, more="{}"):
    import salt.config
    import salt.loader

    opts = salt.config.minion_config("/etc/salt/minion")
    opts["file_client"] = "local"
    opts["module_dirs"] = [*opts.get("module_dirs", []), f"{folder}.d"]
    own = {"images": f"{folder}/images", "nic": {"default": []}, "console_log": False}
    opts["virt"] = {**opts.get("virt", {}), **own, **json.loads(more)}
    opts["grains"] = salt.loader.grains(opts)
    utils = salt.loader.utils(opts)
    modules = salt.loader.minion_mods(opts, utils=utils)
    states = salt.loader.states(opts, modules, utils, {})

    def say_test(is_test):
        states.opts["test"] = is_test

    names = [name for name in states if name.startswith(("virt.", "resources."))]
    functions = {name.partition(".")[2]: states[name] for name in names}
    return Side(libvirt.open("qemu:///system"), folder, functions, say_test)


def main():
    """Answer line by line, until there are no more."""
    side = _of_minion(*sys.argv[1:])
    for line in sys.stdin:
        what, *given = json.loads(line)
        print("ANSWER" + json.dumps(getattr(side, what)(*given)), flush=True)


if __name__ == "__main__":
    main()
