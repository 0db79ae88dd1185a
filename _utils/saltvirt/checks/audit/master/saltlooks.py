"""
A reviewed list of Salt's functions that only look; any other function may do anything.

Some functions with harmless names are left out on purpose: they read files, pillars or options with
secrets (``file.read``, ``pillar.items``, ``test.get_opts``), run a program or a function that the
caller names (``cmd.shell_info``, ``test.try``), connect to a place that the caller names
(``status.ping_master``), or write a cache.

Other functions are left out because of an argument: ``network.get_route`` gives it to a shell;
``sysctl.get`` sets ``KEY=VALUE``; ``manage.down`` deletes keys with ``removekeys=True``;
``service.status`` and its like pass ``--host=`` and ``--image=`` on to systemctl, and
``smbios.get`` options to dmidecode, which opens any file; ``group.members`` sets a group's members.
"""

from collections.abc import Mapping

# By module, as users write it before the dot.
LOOKING_MODULES: Mapping[str, str] = {
    "test": "ping echo version versions versions_information versions_report arg arg_clean "
    "arg_repr arg_type kwarg fib collatz sleep rand_sleep rand_str true false outputter provider "
    "providers not_loaded module_report",
    "grains": "get has_value item items ls equals",
    "status": "uptime loadavg cpustats meminfo cpuinfo diskstats diskusage vmstats nproc netstats "
    "netdev w all_status version procs time",
    "network": "active_tcp arp interfaces interfaces_names interface interface_ip hw_addr hwaddr "
    "subnets subnets6 "
    "in_subnet ip_in_subnet convert_cidr calc_net ip_addrs ip_addrs6 ipaddrs ipaddrs6 ip_neighs "
    "ip_neighs6 ipneighs ipneighs6 ip_networks ip_networks6 get_hostname get_fqdn is_private "
    "is_loopback reverse_ip get_bufsize routes default_route ifacestartswith iphexval "
    "fqdns netstat",
    "disk": "usage inodeusage percent",
    "ps": "top get_pid_list cpu_percent cpu_times virtual_memory swap_memory disk_partitions "
    "disk_usage disk_partition_usage total_physical_memory num_cpus boot_time network_io_counters "
    "disk_io_counters get_users",
    "timezone": "get_zone get_zonecode get_offset get_hwclock",
    "kmod": "available check_available lsmod mod_list is_loaded",
    "saltutil": "is_running running find_job",
    "match": "compound ipcidr pcre glob grain grain_pcre list",
    "mine": "get get_docker valid",
    "sys": "doc state_doc runner_doc returner_doc renderer_doc list_functions list_modules argspec "
    "state_argspec returner_argspec runner_argspec list_state_functions list_state_modules "
    "list_runners list_runner_functions list_returners list_returner_functions list_renderers "
    "state_schema",
    "service": "get_running get_enabled get_disabled get_static get_all",
    "pkg": "version version_cmp version_clean list_pkgs",
    "user": "info list_users list_groups primary_group",
    "group": "info",
    "hosts": "list_hosts get_ip get_alias has_pair",
    "mount": "active swaps is_mounted",
    "locale": "list_avail get_locale avail",
    "state": "show_top running",
}
LOOKING_RUNNERS: Mapping[str, str] = {
    "jobs": "master active lookup_jid list_job list_jobs list_jobs_filter print_job exit_success "
    "last_run",
    "manage": "status up list_state list_not_state present not_present joined not_joined "
    "allowed not_allowed alived not_alived reaped not_reaped versions",
    "cache": "grains",
    "doc": "runner wheel execution",
    "fileserver": "envs file_list symlink_list dir_list empty_dir_list",
    "match": "compound_matches",
    "test": "arg raw_arg metasyntactic",
}
LOOKING_WHEELS: Mapping[str, str] = {
    "key": "list list_all name_match glob_match key_str finger finger_master",
    "minions": "connected",
}
# What a module's functions that are not listed above permit their caller to do.
GIVES: Mapping[str, str] = {
    **dict.fromkeys(
        ("virt", "virt_pki", "virt_image", "seed", "guestfs", "qemu_img", "qemu_nbd"),
        "changes VMs, their disks, networks or keys, or hosts",
    ),
    **dict.fromkeys(("cmd", "at", "cron", "chroot", "ssh", "sudo", "pip"), "runs any program"),
    **dict.fromkeys(("state", "orchestrate", "slsutil"), "applies any state"),
    **dict.fromkeys(
        ("module", "salt", "saltutil", "test", "mine", "schedule", "beacons", "survey"),
        "calls any function",
    ),
    **dict.fromkeys(
        ("file", "cp", "archive", "file_roots", "pillar_roots"), "reads or writes any file"
    ),
    **dict.fromkeys(("pillar", "config", "sdb"), "reads secrets or options"),
    **dict.fromkeys(("pkg", "user", "group", "shadow", "mount", "sysctl"), "changes hosts"),
    "key": "accepts or deletes the keys of minions",
    "network": "gives an argument to a shell, or changes hosts",
    "manage": "deletes the keys of minions, or runs any program on a new one",
}
