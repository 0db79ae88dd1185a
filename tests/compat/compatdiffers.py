"""
Where the answers may differ, and why: ``{row: {path in the outcome: reason}}``.

Paths may have ``*`` and ``?``. A path that does not differ any more fails the row, too.
"""

VOLUME_STAYS = "a disk that is a volume of a pool goes, too"
FLAGS = "the test driver refuses flags that it does not know, and 3006 gives them all"
SAID = "3006 changed autostart and did not say so"
LOUD = "what cannot be done is an error, never False"
CONFIG = "config=True changes the definition of a running VM, as its documentation said"

# On purpose.
DIFFERS = {
    "virt.vm_info of one": {
        "/return/web1/addresses/*": "new",
        "/return/web1/addresses_from": "new",
        "/return/web1/behind_host/*": "new",
        "/return/web1/login": "new",
        "/return/web1/ssh_user": "new",
    },
    "virt.get_profiles": {"/return/nic/nat/*": "new: a profile that needs no bridge"},
    "state virt.pool_running there test=True": {"/return/changes*": SAID, "/return/result": SAID},
    "state virt.pool_running there for real": {"/return/changes*": SAID},
    "virt.undefine": {"/error": FLAGS, "/effects*": FLAGS},
    "cloud libvirt.destroy": {"/error": FLAGS, "/effects*": FLAGS},
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
OWED = {
    "virt.purge": {"/effects*": VOLUME_STAYS},
}
