"""
Driver ``libvirt`` of salt-cloud: VMs that are clones of a base domain.

.. versionadded:: 1.0.0
"""

import functools
import os

import salt.config
import salt.utils.cloud
from salt.exceptions import SaltCloudConfigError, SaltCloudExecutionFailure, SaltCloudSystemExit
from saltvirt.core import arguments
from saltvirt.core.errors import NoSuchVm, VirtError
from saltvirt.core.options import config
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import cloudvms, lifecycle
from saltvirt.storage import writeguard

# The file has the same name, because Salt's loader tries the file of that name first, and Salt 3006
# has a driver of its own.
__virtualname__ = "libvirt"


def __virtual__():
    """Load only if libvirt's Python module is installed and a provider has this driver."""
    missing = connect.why_missing()
    if missing:
        return False, missing
    if get_configured_provider() is False:
        return False, "salt-cloud has no provider with 'driver: libvirt' and a 'url'"
    return __virtualname__


def _provider_name():
    """Return the active provider; Salt has its name as a text, or as a context variable."""
    name = __active_provider_name__
    name = name.value() if hasattr(name, "value") else name
    return name or __virtualname__


def _report_errors(function):
    """Let salt-cloud report our errors in one line, without a traceback."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except VirtError as error:
            raise SaltCloudExecutionFailure(str(error)) from error

    return run


def _open_connection(url, *, readonly=True):
    return connect.open_connection(config.HostSettings(uri=url), readonly=readonly)


def _urls():
    """Return the libvirt URLs of the providers with this driver."""
    drivers = (provider.get("libvirt") for provider in __opts__.get("providers", {}).values())
    return [driver["url"] for driver in drivers if driver]


def _refuse(call, refused_call, option):
    if call == refused_call:
        raise SaltCloudSystemExit(f"this must be called with {option}")


def _fire(action, name, data):
    __utils__["cloud.fire_event"](
        "event",
        "starting create" if action == "creating" else f"{action} instance",
        f"salt/cloud/{name}/{action}",
        args=data,
        sock_dir=__opts__["sock_dir"],
        transport=__opts__["transport"],
    )


def get_configured_provider():
    """Return the first provider of this driver that has a ``url``, False without one."""
    return salt.config.is_provider_configured(__opts__, _provider_name(), ("url",))


@_report_errors
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
    nodes = {}
    for url in _urls():
        with _open_connection(url) as conn:
            nodes |= cloudvms.nodes(conn)
    return nodes


def list_nodes_full(call=None):
    """
    Return the same as ``list_nodes``: libvirt has no more data.

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


@_report_errors
def create(vm_):
    """
    Clone a VM's base domain, start it, wait for its address and have Salt bootstrap it.

    vm_
        The profile: ``base_domain``, ``clone_strategy`` (``full`` or ``quick``), ``ip_source``
        (``ip-learning`` or ``qemu-agent``), ``validate_xml``, and options of Salt's bootstrap.

    An existing VM of that name is bootstrapped again. Returns the result of the bootstrap. Fails
    with one line; a clone without an address, or with a failed bootstrap, is removed; disks that
    were attached to it meanwhile stay.

    CLI Example:

    .. code-block:: bash

        salt-cloud -p centos web1
    """
    if _is_unknown_profile(vm_):
        return False
    name, clone_options = arguments.vm_name(vm_["name"]), _clone_options(vm_)
    _fire("creating", name, _filter_event("creating", vm_))
    _check_key(vm_)
    with _open_connection(vm_["url"], readonly=False) as conn:
        new_clone = None
        if not lifecycle.is_defined(conn, name):
            base = vm_["base_domain"]
            _fire("requesting", name, {"kwargs": {"name": name, "base_domain": base}})
            new_clone = cloudvms.clone(conn, base, name, **clone_options)
        try:
            vm_["ssh_host"] = _wait_for_address(conn, vm_)
            deployment = _bootstrap(vm_)
        except BaseException:
            # Also on Ctrl-C, or the clone would be left over.
            if new_clone is not None:
                cloudvms.remove_clone(conn, name, new_clone)
            raise
    _fire("created", name, _filter_event("created", vm_))
    return deployment


def _bootstrap(vm_):
    """Return the result of Salt's bootstrap; raise if it reports a failure."""
    deployment = __utils__["cloud.bootstrap"](vm_, __opts__)
    error = deployment.get("Error") if isinstance(deployment, dict) else None
    # ``deploy: False`` counts as an error there, too.
    if isinstance(error, dict) and "Not Deployed" in error:
        raise SaltCloudSystemExit(
            f"VM {vm_['name']!r} was not bootstrapped: {error['Not Deployed']}"
        )
    return deployment


def _is_unknown_profile(vm_):
    profile = vm_.get("profile")
    return bool(profile) and not salt.config.is_profile_configured(
        __opts__, _provider_name(), profile
    )


def _filter_event(action, vm_):
    """Return the parts of a profile that an event may have."""
    keys = ["name", "profile", "provider", "driver"]
    return __utils__["cloud.filter_event"](action, vm_, keys)


def _choice(vm_, key, choices, default):
    choice = vm_.get(key) or default
    if choice not in choices:
        choice_names = " or ".join(choices)
        raise SaltCloudSystemExit(f"'{key}' must be one of {choice_names}. Got '{choice}'")
    return choice


def _clone_options(vm_):
    strategy = _choice(vm_, "clone_strategy", cloudvms.STRATEGIES, "full")
    source = _choice(vm_, "ip_source", cloudvms.SOURCES, "ip-learning")
    validate = vm_.get("validate_xml")
    return {
        "strategy": strategy,
        "learn_addresses": source == "ip-learning",
        "validate": True if validate is None else arguments.boolean("validate_xml", validate),
    }


def _check_key(vm_):
    """Store the private key under both names that Salt's bootstrap reads."""
    path = salt.config.get_cloud_config_value(
        "private_key", vm_, __opts__, search_global=False, default=None
    )
    if path is not None and not os.path.isfile(path):
        raise SaltCloudConfigError(f"private_key: there is no file {path}")
    vm_["key_filename"] = vm_["private_key"] = path


def _wait_for_address(conn, vm_):
    source = _choice(vm_, "ip_source", cloudvms.SOURCES, "ip-learning")
    times = {"timeout": 600, "interval": 10, "interval_multiplier": 1}
    timeouts = {
        key: salt.config.get_cloud_config_value(
            f"wait_for_ip_{key}", vm_, __opts__, default=seconds
        )
        for key, seconds in times.items()
    }
    call_args = (conn, vm_["name"], source)
    return salt.utils.cloud.wait_for_ip(cloudvms.address, update_args=call_args, **timeouts)


@_report_errors
def destroy(name, call=None):
    """
    Remove a VM at once, with its disks in storage pools.

    name
        The VM's name.

    Files stay that another VM, its snapshot or overlay uses, including a VM that is being built or
    purged, and files that a disk in the trash is based on. Returns None, or a text if no provider
    or more than one has such a VM. Fails, with nothing removed, if an entry of the trash cannot be
    read, such as from another machine than its host.

    CLI Example:

    .. code-block:: bash

        salt-cloud -d web1
    """
    _refuse(call, "function", "-d, --destroy, -a or --action")
    matching_urls = [url for url in _urls() if _has(url, name)]
    if not matching_urls:
        return f"{name} doesn't exist and can't be deleted"
    if len(matching_urls) > 1:
        return f"{name} doesn't identify a unique machine leaving things"
    _fire("destroying", name, {"name": name})
    settings = config.host_settings(__opts__, connection=matching_urls[0])
    connection = _open_connection(matching_urls[0], readonly=False)
    with connection as conn, writeguard.hold_host_files(settings):
        is_needed = functools.partial(writeguard.find_needed, conn, settings, name)
        cloudvms.destroy(conn, name, is_needed)
    _fire("destroyed", name, {"name": name})
    return None


def _has(url, name):
    with _open_connection(url) as conn:
        try:
            connect.domain(conn, name)
        except NoSuchVm:
            return False
        return True
