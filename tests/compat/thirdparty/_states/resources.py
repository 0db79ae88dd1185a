"""
A state of somebody else's, which asks ``virt`` as Uyuni's ``virt_utils`` does.

The calls, what they are given and what is read of their answers are Uyuni's; the words are not.
"""

import re


def started(name):
    """Have all that a VM lies on be up: the networks of its NICs, the pools of its disks."""
    vm = __salt__["virt.vm_info"](name).get(name)
    if not vm:
        return _said(name, False, {}, "no such VM")
    nics = vm.get("nics", {}).values()
    networks = [nic["source"]["network"] for nic in nics if nic["type"] == "network"]
    files = [disk["file"] for disk in vm.get("disks", {}).values()]
    # "POOL/VOLUME", and neither a path nor a URL.
    pools = [file.split("/")[0] for file in files if re.match("^[^/:]+/", file)]
    changes = {
        "networks": _start("network", networks, lambda info: info.get("active", False)),
        "pools": _start("pool", pools, lambda info: info["state"] == "running"),
    }
    for pool in set(pools) - set(changes["pools"]):
        if not __opts__["test"]:
            __salt__["virt.pool_refresh"](pool)
        changes["pools"][pool] = "refreshed"
    return _said(name, None if __opts__["test"] else True, changes, "all is up")


def _start(kind, names, is_up):
    infos = __salt__[f"virt.{kind}_info"]()
    stopped = [name for name in names if not is_up(infos[name])]
    for name in stopped:
        if not __opts__["test"]:
            __salt__[f"virt.{kind}_start"](name)
    return dict.fromkeys(stopped, "started")


def _said(name, result, changes, comment):
    return {"name": name, "result": result, "changes": changes, "comment": comment}


def placed(name):
    """Say whether a pool and a network of one name are there, as templates ask before they are."""
    pool = __salt__["virt.pool_info"](name).get(name, {}).get("state")
    network = __salt__["virt.network_info"](name).get(name, {}).get("active")
    return _said(name, True, {}, f"{pool} {network}")


def shown(name):
    """Say what a page shows of a VM, and of its host."""
    vms = __salt__["virt.vm_info"](None)
    displays = {vm: about.get("graphics", {}).get("type", None) for vm, about in vms.items()}
    return _said(
        name,
        True,
        {
            "displays": displays,
            "definition": bool(__salt__["virt.get_xml"](name)),
            "info": __salt__["virt.vm_info"](name)[name],
            "devices": [
                one for one in __salt__["virt.node_devices"]() if one["caps"] in ("net", "pci")
            ],
        },
        "shown",
    )
