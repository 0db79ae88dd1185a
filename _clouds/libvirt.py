"""
Driver ``libvirt`` of salt-cloud: VMs that are clones of a base domain.

.. versionadded:: 1.0.0
"""

import functools
import os

import salt.config
import salt.utils.cloud
from salt.exceptions import SaltCloudConfigError, SaltCloudExecutionFailure, SaltCloudSystemExit
from saltvirt import arguments, config
from saltvirt.errors import NoSuchVm, VirtError
from saltvirt.kvm import cloudvms, connect, lifecycle
from saltvirt.ops import clouddisks

# The file has this name, too: whoever looks for one driver gets the file of its name first, and
# Salt 3006 has one of its own.
__virtualname__ = "libvirt"


def __virtual__():
    """Load only where libvirt's Python module is, and a provider has this driver."""
    missing = connect.why_missing()
    if missing:
        return False, missing
    if get_configured_provider() is False:
        return False, "salt-cloud has no provider with 'driver: libvirt' and a 'url'"
    return __virtualname__


def _provider_name():
    """Return the provider that is asked now; Salt has it as a text, or as what has one."""
    name = __active_provider_name__
    name = name.value() if hasattr(name, "value") else name
    return name or __virtualname__


def _reported(function):
    """Let salt-cloud say our errors in one line: others it shows with a traceback."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except VirtError as error:
            raise SaltCloudExecutionFailure(str(error)) from error

    return run


def _opened(url, *, readonly=True):
    return connect.opened(config.HostSettings(uri=url), readonly=readonly)


def _urls():
    """Return where the providers that have this driver say their libvirt is."""
    drivers = (one.get("libvirt") for one in __opts__.get("providers", {}).values())
    return [driver["url"] for driver in drivers if driver]


def _refuse(call, wrong, how):
    if call == wrong:
        raise SaltCloudSystemExit(f"this must be called with {how}")


def _fire(what, name, data):
    __utils__["cloud.fire_event"](
        "event",
        "starting create" if what == "creating" else f"{what} instance",
        f"salt/cloud/{name}/{what}",
        args=data,
        sock_dir=__opts__["sock_dir"],
        transport=__opts__["transport"],
    )


def get_configured_provider():
    """Return the first provider of this driver that has a ``url``, False without one."""
    return salt.config.is_provider_configured(__opts__, _provider_name(), ("url",))


@_reported
def list_nodes(call=None):
    """
    Return the VMs of all providers of this driver.

    Returns ``{name: {id, image, size, state, private_ips, public_ips}}``; the addresses are those
    of leases.

    CLI Example:

    .. code-block:: bash

        salt-cloud -f list_nodes my-libvirt
    """
    _refuse(call, "action", "-f or --function")
    found = {}
    for url in _urls():
        with _opened(url) as conn:
            found |= cloudvms.nodes(conn)
    return found


def list_nodes_full(call=None):
    """
    Return the same as ``list_nodes``: libvirt has no more.

    CLI Example:

    .. code-block:: bash

        salt-cloud -F
    """
    _refuse(call, "action", "-f or --function")
    return list_nodes(call)


def list_nodes_select(call=None):
    """
    Return the VMs with the fields of ``query.selection``.

    CLI Example:

    .. code-block:: bash

        salt-cloud -S
    """
    _refuse(call, "action", "-f or --function")
    selection = __opts__.get("query.selection")
    if not selection:
        raise SaltCloudSystemExit("query.selection not found in /etc/salt/cloud")
    return salt.utils.cloud.list_nodes_select(list_nodes_full(), selection, call)


@_reported
def create(vm_):
    """
    Clone a VM's base domain, start it, wait for its address and have Salt bootstrap it.

    vm_
        The profile: ``base_domain``, ``clone_strategy`` (``full`` or ``quick``), ``ip_source``
        (``ip-learning`` or ``qemu-agent``), ``validate_xml``, and what Salt's bootstrap takes.

    A VM of that name that is there already is bootstrapped again. Returns what the bootstrap says.
    Fails with one line; a clone that has got no address, or could not be bootstrapped, is removed,
    and what was attached to it meanwhile stays.

    CLI Example:

    .. code-block:: bash

        salt-cloud -p centos web1
    """
    if _is_unknown_profile(vm_):
        return False
    name, wanted = arguments.vm_name(vm_["name"]), _clone_options(vm_)
    _fire("creating", name, _filtered("creating", vm_))
    _check_key(vm_)
    with _opened(vm_["url"], readonly=False) as conn:
        made = None
        if not lifecycle.is_defined(conn, name):
            base = vm_["base_domain"]
            _fire("requesting", name, {"kwargs": {"name": name, "base_domain": base}})
            made = cloudvms.clone(conn, base, name, **wanted)
        try:
            vm_["ssh_host"] = _wait_for_address(conn, vm_)
            done = _bootstrapped(vm_)
        except BaseException:
            # Ctrl-C, too: the clone would be left unnoticed.
            if made is not None:
                cloudvms.take_back(conn, name, made)
            raise
    _fire("created", name, _filtered("created", vm_))
    return done


def _bootstrapped(vm_):
    """Return what Salt's bootstrap says; raise if it says that it has failed."""
    done = __utils__["cloud.bootstrap"](vm_, __opts__)
    why = done.get("Error") if isinstance(done, dict) else None
    # That nothing is to be deployed is an error to it, too.
    if isinstance(why, dict) and "Not Deployed" in why:
        raise SaltCloudSystemExit(f"VM {vm_['name']!r} was not bootstrapped: {why['Not Deployed']}")
    return done


def _is_unknown_profile(vm_):
    profile = vm_.get("profile")
    return bool(profile) and not salt.config.is_profile_configured(
        __opts__, _provider_name(), profile
    )


def _filtered(what, vm_):
    """Return of a profile what its event may say."""
    keys = ["name", "profile", "provider", "driver"]
    return __utils__["cloud.filter_event"](what, vm_, keys)


def _choice(vm_, key, choices, default):
    found = vm_.get(key) or default
    if found not in choices:
        listed = " or ".join(choices)
        raise SaltCloudSystemExit(f"'{key}' must be one of {listed}. Got '{found}'")
    return found


def _clone_options(vm_):
    strategy = _choice(vm_, "clone_strategy", cloudvms.STRATEGIES, "full")
    source = _choice(vm_, "ip_source", cloudvms.SOURCES, "ip-learning")
    checked = vm_.get("validate_xml")
    return {
        "strategy": strategy,
        "learn_addresses": source == "ip-learning",
        "validate": True if checked is None else arguments.boolean("validate_xml", checked),
    }


def _check_key(vm_):
    """Have Salt's bootstrap find the private key under both names that it looks for."""
    path = salt.config.get_cloud_config_value(
        "private_key", vm_, __opts__, search_global=False, default=None
    )
    if path is not None and not os.path.isfile(path):
        raise SaltCloudConfigError(f"private_key: there is no file {path}")
    vm_["key_filename"] = vm_["private_key"] = path


def _wait_for_address(conn, vm_):
    source = _choice(vm_, "ip_source", cloudvms.SOURCES, "ip-learning")
    times = {"timeout": 600, "interval": 10, "interval_multiplier": 1}
    configured = {
        key: salt.config.get_cloud_config_value(
            f"wait_for_ip_{key}", vm_, __opts__, default=seconds
        )
        for key, seconds in times.items()
    }
    asked = (conn, vm_["name"], source)
    return salt.utils.cloud.wait_for_ip(cloudvms.address, update_args=asked, **configured)


@_reported
def destroy(name, call=None):
    """
    Remove a VM at once, with its disks that lie in storage pools.

    name
        The VM's name.

    What another VM or its snapshot uses, or is an overlay of, stays, also of one that is just made
    or purged, and what a disk in the trash is based on.
    Returns None; a text if no provider has such a VM, or more than one. Fails, with nothing
    removed, if an entry of the trash cannot be read, as from another machine than its host.

    CLI Example:

    .. code-block:: bash

        salt-cloud -d web1
    """
    _refuse(call, "function", "-d, --destroy, -a or --action")
    having = [url for url in _urls() if _has(url, name)]
    if not having:
        return f"{name} doesn't exist and can't be deleted"
    if len(having) > 1:
        return f"{name} doesn't identify a unique machine leaving things"
    _fire("destroying", name, {"name": name})
    settings = config.host_settings(__opts__, connection=having[0])
    with _opened(having[0], readonly=False) as conn, clouddisks.alone(settings):
        needed = functools.partial(clouddisks.needed, conn, settings, name)
        cloudvms.destroy(conn, name, needed)
    _fire("destroyed", name, {"name": name})
    return None


def _has(url, name):
    with _opened(url) as conn:
        try:
            connect.domain(conn, name)
        except NoSuchVm:
            return False
        return True
