"""
The functions that only look, and those that change a VM, a host, a file or the cloud.

Each file of Salt modules has its functions here, by the names that users type after the dot.
``tests/unit/core/test_lookonly.py`` compares the tables with the files: each new function must be
put on one of the two sides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from saltvirt.core import vmcommands


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """
    The functions of one file.

    module
        The name that users type before the dot.
    looks, changes
        The names of the functions that only look, and of the others, separated by spaces.
    """

    looks: str = ""
    changes: str = ""
    module: str = "virt"

    def looking(self) -> frozenset[str]:
        """Return the functions that only look, such as ``virt.query``."""
        return frozenset(f"{self.module}.{name}" for name in self.looks.split())

    def changing(self) -> frozenset[str]:
        """Return the functions that change something, such as ``virt.purge``."""
        return frozenset(f"{self.module}.{name}" for name in self.changes.split())


# By the names of the files below _modules.
MODULES: Mapping[str, Functions] = {
    "guestfs": Functions(module="guestfs", changes="mount umount"),
    "qemu_img": Functions(module="qemu_img", changes="make_image convert"),
    "qemu_nbd": Functions(module="qemu_nbd", changes="connect mount init clear"),
    "seed": Functions(module="seed", changes="apply mkconfig prep_bootstrap"),
    "virt": Functions(
        changes="init purge start stop shutdown reboot reset pause resume ctrl_alt_del maintenance"
    ),
    "virt_answers": Functions(
        looks="presence shared_files shared_disks file_users host_info placement_facts vms "
        "vm_rows full_info vm_state migration_info",
        changes="signed refuse_order",
    ),
    "virt_answers_moves": Functions(
        looks="migrate_check migration_state",
        changes="migrate_begin migrate_prepare migrate_step migrate_push",
    ),
    "virt_capabilities": Functions(
        looks="capabilities domain_capabilities all_capabilities cpu_baseline"
    ),
    "virt_change": Functions(changes="update"),
    "virt_clone": Functions(changes="clone"),
    "virt_define": Functions(
        changes="undefine define_xml_str define_xml_path create_xml_str create_xml_path"
    ),
    "virt_device": Functions(
        changes="disk_add disk_grow disk_remove move_disk nic_add nic_remove eject insert"
    ),
    "virt_doctor": Functions(
        looks="doctor_facts trash", changes="doctor_mend trash_put trash_restore trash_empty undo"
    ),
    "virt_guest": Functions(looks="guest_info", changes="guest_exec"),
    "virt_image": Functions(looks="images", changes="image_pull image_prune image_build"),
    "virt_key": Functions(changes="authorized"),
    "virt_migrate": Functions(
        looks="load migrate_status",
        changes="migrate hold evacuated migrate_cancel migrate_start_postcopy "
        "seed_non_shared_migrate",
    ),
    "virt_networks": Functions(
        looks="list_networks network_info network_get_xml",
        changes="network_define network_update network_start network_stop network_undefine "
        "network_set_autostart",
    ),
    "virt_pool": Functions(
        looks="pool_capabilities list_pools pool_info pool_get_xml pool_list_volumes",
        changes="pool_define pool_update pool_start pool_build pool_stop pool_undefine "
        "pool_delete pool_refresh pool_set_autostart",
    ),
    "virt_query": Functions(
        looks="audit setup_facts list_domains list_active_vms list_inactive_vms vm_info node_info "
        "node_devices freecpu freemem get_profiles is_hyper virt_type get_hypervisor"
    ),
    "virt_rename": Functions(changes="rename"),
    "virt_snapshot": Functions(
        looks="list_snapshots", changes="snapshot delete_snapshots revert_snapshot"
    ),
    "virt_status": Functions(looks="status_facts"),
    "virt_stats": Functions(looks="vm_cputime vm_netstats vm_diskstats"),
    "virt_update": Functions(changes="setmem setvcpus set_autostart"),
    "virt_vm": Functions(
        looks="get_xml get_disks get_nics get_macs get_graphics get_loader console_log"
    ),
    "virt_volume": Functions(
        looks="volume_infos",
        changes="volume_define define_vol_xml_str define_vol_xml_path volume_delete volume_resize "
        "volume_clone volume_upload volume_download volume_wipe",
    ),
}


def _runner(file: str, *, looks: str = "", changes: str = "") -> Functions:
    """Return the functions of a file below _runners: its commands on one VM, and these others."""
    return Functions(
        looks=f"{looks} {vmcommands.of_file(file, only_looks=True)}",
        changes=f"{changes} {vmcommands.of_file(file, only_looks=False)}",
    )


# By the names of the files below _runners.
RUNNERS: Mapping[str, Functions] = {
    "virt": _runner("virt", changes="init"),
    "virt_act": _runner("virt_act"),
    "virt_allow": Functions(changes="allow disallow"),
    "virt_audit": Functions(looks="audit"),
    "virt_cells": Functions(looks="find cell_job"),
    "virt_clone": _runner("virt_clone"),
    "virt_details": _runner("virt_details"),
    "virt_device": _runner("virt_device"),
    "virt_doctor": Functions(looks="trash", changes="doctor trash_restore trash_empty undo"),
    "virt_guest": _runner("virt_guest"),
    "virt_help": Functions(looks="help"),
    "virt_host": Functions(looks="host_lost"),
    "virt_image": Functions(looks="images", changes="image_pull image_prune image_build"),
    "virt_files": _runner(
        "virt_files", changes="volume_delete volume_wipe volume_resize volume_upload trash_put"
    ),
    "virt_image_minion": Functions(module="virt_image", changes="minion_packages"),
    "virt_key": Functions(changes="authorize unauthorize"),
    "virt_look": Functions(looks="query list host_info hyper_info next_host next_hyper"),
    "virt_many": Functions(changes="init_many"),
    "virt_migrate": _runner("virt_migrate", changes="maintenance evacuate restore rebalance"),
    "virt_pki": Functions(
        module="virt_pki", looks="list", changes="renew revoke rotate_ca export import"
    ),
    "virt_rename": _runner("virt_rename"),
    "virt_setup": Functions(looks="setup_check"),
    "virt_status": Functions(looks="status"),
    "virt_vm": _runner("virt_vm"),
}
