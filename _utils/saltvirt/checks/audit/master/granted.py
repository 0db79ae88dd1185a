"""Find granted Salt functions that may do more than look, by a list of those that only look."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import salt

from saltvirt.core.salt import lookonly

_MODULE = re.compile(r"""^__virtualname__ *= *["'](\w+)["']""", re.MULTILINE)
# A function, or an alias of a function.
_FUNCTION = re.compile(r"^(?:def (?=[A-Za-z]\w*\()|(?=[a-z]\w* *= .*alias_function))(\w+)", re.M)


@cache
def read_functions(kind: str) -> frozenset[str]:
    """
    Return the functions of a kind, such as ``cmd.run``.

    kind
        Salt's folder of their modules: ``modules``, ``runners`` or ``wheel``.
    """
    return frozenset(_read_functions(Path(salt.__file__).parent / kind))


def _read_functions(folder: Path) -> Iterator[str]:
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        module_match = _MODULE.search(text)
        modules = {path.stem, module_match[1]} if module_match else {path.stem}
        for function in _FUNCTION.finditer(text):
            # Salt offers list_ as list.
            name = function[1].rstrip("_")
            yield from (f"{module}.{name}" for module in modules)


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


# Kinds of functions, as Salt's ACLs write them after an @.
MODULES, RUNNERS, WHEELS = "module", "runner", "wheel"
_UNKNOWN = "is not known only to look"


# Known functions by name, and whether each only looks.
_Functions = frozenset[tuple[str, bool]]


@cache
def _functions(kind: str) -> _Functions:
    names_by_module, folder = {
        MODULES: (LOOKING_MODULES, "modules"),
        RUNNERS: (LOOKING_RUNNERS, "runners"),
        WHEELS: (LOOKING_WHEELS, "wheel"),
    }[kind]
    # This project's functions of one name are alike on minions and master: one list serves both.
    project_modules = (
        [] if kind == WHEELS else [*lookonly.MODULES.values(), *lookonly.RUNNERS.values()]
    )
    looking_names = {
        f"{module}.{name}" for module, names in names_by_module.items() for name in names.split()
    }.union(*(functions.looking() for functions in project_modules))
    # This project's modules replace Salt 3006's modules of the same names.
    replaced_modules = {functions.module for functions in project_modules}
    names = looking_names.union(
        *(functions.changing() for functions in project_modules),
        (name for name in read_functions(folder) if name.partition(".")[0] not in replaced_modules),
    )
    return frozenset((name, name in looking_names) for name in names)


def describe_grants(grants: object, kind: str = MODULES) -> list[str]:
    """
    Return the allowed functions that may do more than look, with what each permits.

    grants
        As in ``publisher_acl`` and ``external_auth``: expressions of function names, and mappings
        of a target, ``@runner``, ``@wheel`` or ``@MODULE`` to such expressions.
    kind
        What plain expressions name: minions' functions, or ``runner`` for ``peer_run``.

    Returns texts such as ``cmd.run (runs any program)``.
    """
    return sorted(set(_find_grants(grants, kind)))


def _find_grants(grants: object, kind: str) -> Iterator[str]:
    if isinstance(grants, str):
        yield from _find_text_grants(grants, kind)
    elif isinstance(grants, Mapping):
        for target, functions in grants.items():
            yield from _find_target_grants(str(target), functions, kind)
    elif isinstance(grants, list | tuple):
        for grant in grants:
            yield from _find_grants(grant, kind)


def _find_text_grants(text: str, kind: str) -> Iterator[str]:
    if not text.startswith("@"):
        permission = _describe_expression(text, _functions(kind))
    elif text.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        permission = "calls any function of the master"
    else:
        permission = _describe_expression("", _module_functions(text[1:]), text[1:])
    if permission:
        yield f"{text} ({permission})"


def _find_target_grants(target: str, functions: Any, kind: str) -> Iterator[str]:
    # A mapping has conditions on a function's arguments: only the function's name counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    kind_names, module = _find_target_functions(target, kind)
    for name in names:
        for text in list(name) if isinstance(name, Mapping) else [name]:
            permission = (
                _describe_expression(text, kind_names, module) if isinstance(text, str) else None
            )
            if permission:
                yield f"{target}: {text} ({permission})"


def _find_target_functions(target: str, kind: str) -> tuple[_Functions, str]:
    """Return the functions that a target covers, and their module if names omit it."""
    if not target.startswith("@"):
        return _functions(kind), ""
    if target.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        return _functions(target.rstrip("s")[1:]), ""
    return _module_functions(target[1:]), target[1:]


def _module_functions(module: str) -> _Functions:
    """Return one module's functions, by their names after the dot."""
    prefix = f"{module}."
    # Salt looks for the module among runners and among wheels.
    return frozenset(
        (name.removeprefix(prefix), only_looks)
        for name, only_looks in _functions(RUNNERS) | _functions(WHEELS)
        if name.startswith(prefix)
    )


def _describe_expression(expression: str, functions: _Functions, module: str = "") -> str | None:
    """
    Return what an expression permits, None if it only allows looking or is invalid.

    module
        The functions' module, if their names omit it.
    """
    try:
        # Salt, too, matches from the beginning of a name, and not to its end.
        match_start = re.compile(expression).match
    except re.error:
        return None
    matches = [(name, only_looks) for name, only_looks in functions if match_start(name)]
    changing_names = [name for name, only_looks in matches if not only_looks]
    if not changing_names:
        # An expression for an operator's own function matches no known name.
        return None if matches else _UNKNOWN
    modules = {module} if module else {name.partition(".")[0] for name in changing_names}
    permissions = {GIVES.get(module_name, _UNKNOWN) for module_name in modules}
    return permissions.pop() if len(permissions) == 1 else "calls functions of several modules"
