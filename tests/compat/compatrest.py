"""The functions of the old surface that no row asks, and why."""

# These are here, and their rows say no more than that the test driver knows nothing of it: whoever
# gives it an answer as QEMU's driver has it, and has read the row, takes the line out.
NOT_JUDGED_YET = {
    "modules/virt.all_capabilities",
    "modules/virt.cpu_baseline",
    "modules/virt.domain_capabilities",
}

EXAMPLES = "tests/cloud/test_examples.py"
HOSTS = "it needs a master and hosts; its example is run there"
GUEST = "it needs a guest's disk; its example is run there"
MACHINE = "3006's answer is this machine's: its /dev/kvm, and whether a libvirtd runs anywhere"
RUNNERS = ("force_off", "host_info", "init", "list", "migrate", "next_host", "pause", "purge")
MORE_RUNNERS = ("query", "reset", "resume", "start", "vm_info")

# Asked elsewhere: ``{function: (file with the test, why not here)}``.
ELSEWHERE = {
    **{f"runners/virt.{name}": (EXAMPLES, HOSTS) for name in (*RUNNERS, *MORE_RUNNERS)},
    "engines/libvirt_events.start": ("tests/compat/test_compat_engine.py", "it does not end"),
    "clouds/libvirt.create": (
        "tests/unit/bundle/test_clouds_driver.py",
        "Salt's bootstrap follows it",
    ),
    "modules/guestfs.umount": (EXAMPLES, GUEST),
    "modules/qemu_nbd.clear": (EXAMPLES, GUEST),
    "modules/qemu_nbd.init": (EXAMPLES, GUEST),
    "modules/qemu_nbd.mount": (EXAMPLES, GUEST),
    "modules/seed.apply": (
        "tests/unit/seeding/test_existing.py",
        "it needs a guest's disk",
    ),
    "modules/seed.prep_bootstrap": (
        "tests/unit/seeding/test_existing.py",
        "as seed.apply",
    ),
    "modules/virt.init": (EXAMPLES, "3006's knows no disks of the test driver"),
    "modules/virt.get_hypervisor": (EXAMPLES, MACHINE),
    "modules/virt.is_hyper": (EXAMPLES, MACHINE),
    "modules/virt.migrate": (EXAMPLES, HOSTS),
    "modules/virt.migrate_start_postcopy": (EXAMPLES, HOSTS),
    "modules/virt.seed_non_shared_migrate": (EXAMPLES, HOSTS),
    "pillar/libvirt": ("tests/cloud/test_keys.py", "it needs a master's CA"),
    "pillar/virtkey": ("tests/cloud/test_virtkey.py", "it needs a master's keys"),
    "states/virt.keys": ("tests/cloud/test_keys.py", "it needs a master's CA"),
}

# Helpers of the old files, which Salt's loader showed and nobody called: never here.
NEVER = {
    "modules/virt.nesthash",
    "clouds/libvirt.create_volume_with_backing_store_xml",
    "clouds/libvirt.create_volume_xml",
    "clouds/libvirt.destroy_domain",
    "clouds/libvirt.do_cleanup",
    "clouds/libvirt.find_pool_and_volume",
    "clouds/libvirt.generate_new_name",
    "clouds/libvirt.get_domain_ip",
    "clouds/libvirt.get_domain_ips",
    "clouds/libvirt.get_domain_volumes",
    "clouds/libvirt.libvirt_error_handler",
    "clouds/libvirt.to_ip_addr_type",
}
