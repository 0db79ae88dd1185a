"""
Where the answers may differ, and why: ``{row: {path in the outcome: reason}}``.

Paths may have ``*`` and ``?``. A path that does not differ any more fails the row, too.
"""

BY_FILE = "the file is removed, then the pool looks again, which the test driver never does"
FLAGS = "the test driver refuses flags that it does not know, and 3006 gives them all"
SAID = "3006 changed autostart and did not say so"
LOUD = "what cannot be done is an error, never False"
CONFIG = "config=True changes the definition of a running VM, as its documentation said"

REVERTS = "it works, and test=True changes nothing; 3006 reverted, and ended in a KeyError"

CLOSED = "closed, unless virt:compat is 3006"
KVMS = "3006 had a model for KVM and QEMU, and none for the test driver"
_DETAILS = (
    *("affinity*", "anti_affinity*", "autostart", "created", "hold", "machine", "pending*"),
    *("snapshots*", "uptime_s"),
)
NEW_OF_ONE = ("addresses*", "addresses_from", "behind_host/*", "login", "ssh_user", *_DETAILS)
ALL_NEW = ("addresses*", "addresses_from", "behind_host*", "login", "ssh_user", *_DETAILS)
USED = "disks that are volumes (type=volume) count, too"
MARKUP = "markup in a name is text; 3006 gave it to libvirt as markup, which failed"
STOPPED = "a VM that does not run has no figures; 3006 failed over it"
DOCUMENTED = "3006 documented it, and passed it over"

AGAIN = "a second one changes nothing"
ALL_OF_THEM = "libvirt leaves out current where it is all there are: it is no change"
AUTOSTART = "autostart is told as it is changed, and only then; test=True changes nothing"
LEFT_OUT = "a device that the call does not name is detached with detach=True alone"
LOST = "3006's network_define lost vport and tag"
NAMED = "3006 lost the name, so that the pool was of another source"
OF_TEST = "the test driver has neither live devices nor their flags: each calls what it lacks"
RESTART = "restart says what waits for one"
THERE = "what is there changes nothing, and is True"
WORKS = "it works, where 3006 failed"

# Of compatmore.py, compatobjects.py and compatupdates.py.
_MORE = {
    **{
        f"virt.vm_info {label}": {f"/return/{vm}/{key}": "new" for key in ALL_NEW}
        for label, vm in (("at a URI", "web1"), ("off", "off1"), ("vm_=", "paused1"))
    },
    "virt.get_profiles of nothing": {
        "/return/disk/default/system/*": KVMS,
        "/return/nic/default/eth0/*": KVMS,
        "/return/nic/nat*": "new: a profile that needs no bridge",
    },
    "virt.get_profiles qemu": {"/return/nic/nat*": "new: a profile that needs no bridge"},
    "virt.purge dirs": {"/effects*": BY_FILE},
    "virt.purge removables": {"/effects*": BY_FILE},
    "virt.purge with snapshots": {"/error": WORKS, "/effects*": WORKS},
    "virt.undefine vm_=": {"/error": FLAGS, "/effects*": FLAGS},
    **{
        f"virt.network_define {label}": {"/effects*": LOST}
        for label in ("a vport", "a vport's parameters", "a tag", "a trunk")
    },
    "state virt.network_defined a tag for real": {"/effects*": LOST},
    **{
        f"virt.pool_{row}": {"/*": NAMED}
        for label in ("zfs", "zfs, permissions")
        for row in (f"define {label}", f"update {label}, again")
    },
    **{
        f"virt.volume_infos {label}": {"/return/default/off1.qcow2/used_by*": USED}
        for label in ("of a pool", "pool= and volume=")
    },
    "state virt.unpowered all test=True": {
        "/return/changes/unpowered/2/*": "what is off is left alone, as it was for real"
    },
    "state virt.rebooted off test=True": {"/return/*": "told by test=True, too"},
    "state virt.rebooted off for real": {
        "/return/changes/ignored/0/issue": "our own words, with what to do"
    },
    **{
        f"state virt.reverted {label} {how}": {"/error": REVERTS, "/effects*": REVERTS}
        if how == "test=True" and label != "none"
        else {"/error": REVERTS}
        for label in ("by name", "cleanup", "none")
        for how in ("test=True", "for real")
    },
    "state virt.network_running there test=True": {"/return/result": THERE},
    "state virt.pool_running transient for real": {"/return/*": WORKS},
    **{
        f"state virt.volume_defined no pool {how}": {"/error": "it is result: False"}
        for how in ("test=True", "for real")
    },
    "qemu_img.make_image no folder": {"/error": LOUD},
    "qemu_img.convert none": {"/error": LOUD},
    "cloud libvirt.destroy running, action": {"/error": WORKS, "/effects*": WORKS},
    "output virt_query nothing": {"/error": "3006's own could show nothing: KeyError"},
    "output virt_query no VMs": {"/error": "3006's own could show nothing: KeyError"},
    **{
        f"virt.update {label}, again": {"/return/definition": AGAIN}
        for label in ("mem: backing", "loader", "seconds")
    },
    **{
        f"virt.update cpu: current alone{again}": {"/return/definition": ALL_OF_THEM}
        for again in ("", ", again")
    },
    "virt.update mem: current of one that runs, again": {"/return/mem": AGAIN},
    "virt.update more mem of one that runs": {
        "/return/errors*": "what cannot be at once waits for a restart, and is no error",
        "/return/restart*": RESTART,
    },
    **{
        f"virt.update {label}": {"/return/restart*": RESTART}
        for label in (
            "live=False",
            "no display of one that runs",
            "cpu: tuning alone of one that runs",
            "mem: a limit of one that runs",
        )
    },
    "virt.update cpu, test": {"/return/diff*": "new: the lines that would change"},
    "virt.update autostart": {"/return/autostart": AUTOSTART},
    "virt.update autostart, test": {
        "/return/autostart": AUTOSTART,
        "/return/diff*": "new: the lines that would change",
        "/effects*": AUTOSTART,
    },
    **{
        f"state virt.{name} autostart {how}": {
            "/return/*": AUTOSTART,
            **({"/effects*": AUTOSTART} if how == "test=True" else {}),
        }
        for name in ("defined", "running")
        for how in ("test=True", "for real")
    },
    "state virt.running nothing test=True": {"/return/result": "what would change is None"},
    "virt.update timers": {"/effects*": "the order of timers means nothing"},
    "virt.update hint": {"/effects*": KVMS, "/return/definition": KVMS},
    "virt.update numatune": {"/effects*": KVMS, "/return/definition": KVMS},
    "virt.update a kernel that is not there": {
        "/error": "a VM that could not start is not defined",
        "/effects*": "a VM that could not start is not defined",
    },
    **{
        f"virt.update {label} left out": {"/error": LEFT_OUT, "/effects*": LEFT_OUT}
        for label in ("a disk", "a device")
    },
    "virt.update cpu: no tuning": {"/error": WORKS, "/effects*": WORKS},
    "virt.update a NIC of a card": {"/error": WORKS, "/effects*": WORKS},
    "virt.update other consoles": {
        "/effects*/target@port": "libvirt counts the ports of each type by itself"
    },
    **{
        f"virt.update {label}{of}": {"/return/errors*": OF_TEST, "/return/restart*": RESTART}
        for label, of in (
            ("no disks", " of one that runs"),
            ("no NICs", ""),
            ("a NIC less", ""),
            ("another bridge", ""),
        )
        for of in (of, f"{of}, again")
    },
}

# On purpose.
DIFFERS = {
    **_MORE,
    "virt.purge": {"/effects*": BY_FILE},
    "virt.vm_netstats": {"/error": STOPPED},
    "virt.volume_infos": {
        "/return/default/off1.qcow2/used_by*": USED,
        "/return/win*/used_by*": USED,
    },
    "virt.volume_infos odd": {"/return/win*/used_by*": USED},
    "virt.volume_infos odd, of one": {"/return/win*/used_by*": USED},
    "virt.vm_info odd": {f"/return/win*/{key}": "new" for key in NEW_OF_ONE},
    "virt.network_update odd": {"/error": MARKUP},
    **{
        row: {"/error": MARKUP, "/effects*": MARKUP}
        for row in (
            *(f"virt.{what} odd" for what in ("update", "volume_define")),
            *(f"virt.{what} odd" for what in ("network_define", "pool_define")),
            *(f"state virt.{what}_running odd for real" for what in ("network", "pool")),
            "state virt.running odd for real",
            "state virt.volume_defined odd for real",
        )
    },
    **{
        f"state virt.{what} odd test=True": {"/error": MARKUP}
        for what in ("running", "network_running", "pool_running")
    },
    "state virt.reverted test=True": {"/error": REVERTS, "/effects*": REVERTS},
    "state virt.reverted for real": {"/error": REVERTS},
    "state virt.running test=True": {"/return/result": "what would change something is None"},
    "state virt.network_defined there test=True": {
        "/return/changes*": SAID,
        "/return/result": SAID,
    },
    "state virt.network_defined there for real": {"/return/changes*": SAID},
    "virt.vm_info of one": {f"/return/web1/{key}": "new" for key in NEW_OF_ONE},
    "state resources.shown": {f"/return/changes/info/{key}": "new" for key in NEW_OF_ONE},
    "virt.get_profiles": {"/return/nic/nat/*": "new: a profile that needs no bridge"},
    "state virt.pool_running there test=True": {"/return/changes*": SAID, "/return/result": SAID},
    "state virt.pool_running there for real": {"/return/changes*": SAID},
    "virt.undefine": {"/error": FLAGS, "/effects*": FLAGS},
    "cloud libvirt.destroy": {"/error": FLAGS, "/effects*": FLAGS},
    "virt.update test": {"/return/diff*": "new: the lines of the definition that would change"},
    "virt.update a serial that says nothing": {"/effects*": CLOSED},
    "virt.update a display that says no address": {"/effects*": CLOSED},
    "virt.update UDP": {
        "/error": "it works; libvirt never took what 3006 made of it",
        "/effects*": "it works",
    },
    "virt.update a cache's unit": {"/effects*": "3006's update lost the unit"},
    "virt.update feature:": {"/effects*": DOCUMENTED},
    "virt.update catchup:": {"/effects*": DOCUMENTED},
    "virt.update a NIC of functions": {
        "/effects/VM off1/definition//devices/interface/model@type": KVMS,
    },
    "virt.update an unknown keyword": {"/error": "a keyword that means nothing is an error"},
    "virt.start running": {"/error": "what runs is left alone"},
    "virt.setmem running": {"/error": LOUD},
    "virt.setmem running, config": {"/return": CONFIG, "/effects*": CONFIG},
    "virt.setvcpus": {
        "/error": "it works; 3006 left out the flag that libvirt asks for",
        "/effects*": "it works",
    },
    "virt.setvcpus running": {"/error": LOUD},
    "virt.setvcpus running, config": {"/return": CONFIG, "/effects*": CONFIG},
    "virt.set_autostart neither": {"/error": LOUD},
    "virt.define_xml_path": {"/error": LOUD},
    "virt.create_xml_path": {"/error": LOUD},
    "virt.define_vol_xml_path": {"/error": LOUD},
    "qemu_nbd.connect": {"/error": "virt:seed:allow_host_mount is asked for first"},
    "guestfs.mount": {"/error": LOUD},
    "output virt_query": {"/error": "3006's own could show nothing: KeyError"},
}

# Not on purpose: what is to be mended, said as it has to be; then its line is taken out.
OWED: dict[str, dict[str, str]] = {}
