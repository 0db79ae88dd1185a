"""Which of Salt's functions change VMs or hosts."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

# Those that change VMs or hosts; who may call them is as good as root on a hypervisor.
_VIRT = (
    *("init", "signed", "purge", "undefine", "image_pull", "image_prune", "image_build"),
    *("define_xml_str", "define_xml_path", "create_xml_str", "create_xml_path"),
    *("start", "stop", "shutdown", "reboot", "reset", "pause", "resume", "maintenance"),
    *("setmem", "setvcpus", "set_autostart", "migrate", "evacuate", "rebalance", "settle"),
    *("allow", "disallow", "authorize", "seed_non_shared_migrate", "refuse_order", "hold", "stay"),
    *("migrate_begin", "migrate_prepare", "migrate_push", "migrate_step", "migrate_cancel"),
    *("migrate_forget", "restore", "guest_exec"),
)
# Those that do whatever they are given, beside virt: on a minion, and by the master itself.
_SALTS = (
    *("cmd.run", "cmd.run_all", "cmd.shell", "cmd.script", "cmd.exec_code"),
    *("state.apply", "state.sls", "state.single", "state.template_str", "state.high"),
    *("file.write", "file.append", "cp.get_url", "module.run", "salt.cmd", "salt.execute"),
    *("state.orchestrate", "state.orch", "ssh.cmd", "seed.apply", "guestfs.mount"),
)
# Of the master's wheels, those by which a key is taken for a hypervisor's, or its files written.
_WHEELS = (
    *("key.accept", "key.accept_dict", "key.gen_accept", "key.delete", "file_roots.write"),
    *("pillar_roots.write", "config.apply", "config.update_config"),
)
_CHANGING = (*(f"virt.{name}" for name in _VIRT), *_SALTS)


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
    wanted = _WHEELS if _is_wheels(target) else _CHANGING
    for name in names:
        texts = list(name) if isinstance(name, dict) else [name]
        for text in texts:
            if isinstance(text, str) and _lets(text, wanted):
                yield f"{target}: {text}"


def _is_wheels(target: str) -> bool:
    return target.rstrip("s") == "@wheel"


def _lets(pattern: str, wanted: Iterable[str] = _CHANGING) -> bool:
    if pattern.startswith("@"):
        return pattern.rstrip("s") in ("@runner", "@wheel")
    try:
        # As Salt does: from its beginning, not to its end.
        return any(re.match(pattern, name) for name in wanted)
    except re.error:
        return False
