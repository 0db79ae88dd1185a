"""
Let a hypervisor submit the minion key of a VM that it seeds itself.

.. versionadded:: 1.0.0

``salt-run virt.init`` makes and accepts keys itself; VMs made with ``salt HOST virt.init`` or
``seed.apply`` need this authorization.
"""

import time

from saltvirt.cluster.cloud import Cloud
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.seeding.master import authorization

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function
def authorize(name, host, minutes=10, replace=False):
    """
    Let one hypervisor submit the key of one VM, once, within some minutes.

    name
        The VM's minion id.
    host
        The hypervisor; it gets a token that only it can read.
    minutes
        The validity in minutes. Defaults to 10.
    replace
        Replace another accepted key of that id. Defaults to False: refuse.

    Returns ``{"name", "host", "until"}``. Undo: virt.unauthorize.

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web9 hyper1
        salt-run virt.unauthorize web9
    """
    expires_at = authorization.grant(
        Cloud.of(__opts__), name, host, minutes=minutes, replace=replace
    )
    return {
        "name": name,
        "host": host,
        "until": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(expires_at)),
    }


@runner_function
def unauthorize(name):
    """
    Revoke an unused authorization of virt.authorize.

    name
        The VM's minion id.

    Returns True; fails if there is none.

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web9 hyper1
        salt-run virt.unauthorize web9
    """
    authorization.revoke(Cloud.of(__opts__), name)
    return True
