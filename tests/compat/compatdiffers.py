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
NEW_OF_ONE = ("addresses*", "addresses_from", "behind_host/*", "login", "ssh_user")
USED = "disks that are volumes (type=volume) count, too"
MARKUP = "markup in a name is text; 3006 gave it to libvirt as markup, which failed"
STOPPED = "a VM that does not run has no figures; 3006 failed over it"
DOCUMENTED = "3006 documented it, and passed it over"

# On purpose.
DIFFERS = {
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
