"""Which of Salt's functions change VMs or hosts."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

# Those that change VMs, or files of hosts; who may call them is as good as root on a hypervisor.
_VIRT = (
    *("init", "init_many", "clone", "signed", "purge", "undefine", "update"),
    *("image_pull", "image_prune", "image_build", "seed_non_shared_migrate"),
    *("define_xml_str", "define_xml_path", "create_xml_str", "create_xml_path"),
    *("start", "stop", "shutdown", "reboot", "reset", "pause", "resume", "ctrl_alt_del"),
    *("setmem", "setvcpus", "set_autostart", "guest_exec"),
    *("snapshot", "revert_snapshot", "delete_snapshots"),
    *("migrate", "evacuate", "evacuated", "rebalance", "restore", "settle", "maintenance"),
    *("migrate_begin", "migrate_prepare", "migrate_push", "migrate_step", "migrate_cancel"),
    *("migrate_forget", "migrate_start_postcopy", "refuse_order", "hold", "stay"),
    *("allow", "disallow", "authorize", "authorized", "unauthorize"),
    *("define_vol_xml_str", "define_vol_xml_path", "volume_define", "volume_clone"),
    *("volume_delete", "volume_download", "volume_resize", "volume_upload", "volume_wipe"),
    *("pool_define", "pool_update", "pool_build", "pool_delete", "pool_undefine", "pool_start"),
    *("pool_stop", "pool_refresh", "pool_set_autostart"),
    *("network_define", "network_update", "network_undefine", "network_start", "network_stop"),
    "network_set_autostart",
    *("doctor", "doctor_mend", "trash_restore", "trash_empty"),
)
# Those of ours that have other names.
_BESIDE = (
    *("seed.apply", "seed.mkconfig", "seed.prep_bootstrap", "guestfs.mount", "guestfs.umount"),
    *("qemu_nbd.connect", "qemu_nbd.mount", "qemu_nbd.init", "qemu_nbd.clear"),
    *("qemu_img.make_image", "qemu_img.convert", "virt_image.minion_packages"),
    *("virt_pki.renew", "virt_pki.revoke", "virt_pki.rotate_ca", "virt_pki.export"),
    "virt_pki.import",
)
# Those of Salt that do whatever they are given, on a minion, and by the master itself.
_SALTS = (
    *("cmd.run", "cmd.run_all", "cmd.run_bg", "cmd.run_chroot", "cmd.run_stdout", "cmd.run_stderr"),
    *("cmd.retcode", "cmd.shell", "cmd.script", "cmd.script_retcode", "cmd.exec_code"),
    *("state.apply", "state.sls", "state.sls_id", "state.single", "state.template_str"),
    *("state.high", "state.highstate", "state.low", "state.pkg", "state.top"),
    *("file.write", "file.append", "file.prepend", "file.replace", "file.copy", "file.symlink"),
    *("file.manage_file", "cp.get_file", "cp.get_dir", "cp.get_template", "cp.get_url"),
    *("module.run", "salt.cmd", "salt.execute", "state.orchestrate", "state.orch", "ssh.cmd"),
    *("saltutil.cmd", "saltutil.runner", "saltutil.wheel", "ssh.set_auth_key", "schedule.add"),
    *("cron.set_job", "pkg.install", "user.add", "shadow.set_password"),
    # These call any function, or render a text that can.
    *("cmd.powershell", "chroot.call", "at.at", "mine.send", "saltutil.mmodule", "sudo.salt_call"),
    *("slsutil.renderer", "state.template", "state.orch_single", "state.orchestrate_single"),
    *("state.orchestrate_high", "schedule.modify", "cron.write_cron_file", "beacons.add"),
)
# Of the master's wheels, those by which a key is taken for a hypervisor's, or its files written.
_WHEELS = (
    *("key.accept", "key.accept_dict", "key.gen_accept", "key.delete", "file_roots.write"),
    *("pillar_roots.write", "config.apply", "config.update_config"),
)
_CHANGING = (*(f"virt.{name}" for name in _VIRT), *_BESIDE, *_SALTS)
_OF_MASTER = (*_CHANGING, *_WHEELS)


def granted(grants: object) -> Iterator[str]:
    """Yield what of Salt's lists of allowed functions lets somebody change VMs or hosts."""
    if isinstance(grants, str):
        if _lets(grants):
            yield grants
    elif isinstance(grants, dict):
        for target, functions in grants.items():
            yield from _below(str(target), functions)
    elif isinstance(grants, list | tuple):
        for one in grants:
            yield from granted(one)


def _below(target: str, functions: Any) -> Iterator[str]:
    # A function with conditions on its arguments has them in a mapping; the name is what counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    wanted = _wanted(target)
    for name in names:
        texts = list(name) if isinstance(name, dict) else [name]
        for text in texts:
            if isinstance(text, str) and _lets(text, wanted):
                yield f"{target}: {text}"


def _wanted(target: str) -> Iterable[str]:
    """Return which functions change something, as they are called below a target."""
    if target.rstrip("s") == "@wheel":
        return _WHEELS
    if not target.startswith("@") or target.rstrip("s") == "@runner":
        return _CHANGING
    # Salt takes it for the name of a module too, of runners and of wheels, and then looks at the
    # names of functions without it.
    module = f"{target[1:]}."
    return [one.removeprefix(module) for one in _OF_MASTER if one.startswith(module)]


def _lets(pattern: str, wanted: Iterable[str] = _CHANGING) -> bool:
    if pattern.startswith("@"):
        return pattern.rstrip("s") in ("@runner", "@wheel") or bool([*_wanted(pattern)])
    try:
        # As Salt does: from its beginning, not to its end.
        return any(re.match(pattern, name) for name in wanted)
    except re.error:
        return False
