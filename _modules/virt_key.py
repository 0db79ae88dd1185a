"""
Store the master's authorization to submit a VM's minion key.

.. versionadded:: 1.0.0
"""

from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.seeding import submission

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def authorized(name, token):
    """
    Store a token that ``salt-run virt.authorize`` sealed for this host.

    name
        The VM's minion id.
    token
        The sealed token; None removes the stored one.

    Returns True. The next ``virt.init`` or ``seed.apply`` of that id uses it up. Undo: salt-run
    virt.unauthorize.

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web9 hyper1 # which calls virt.authorized there
        salt-run virt.unauthorize web9
    """
    submission.keep_token(_module.context(), name, token)
    return True


optionguard.modules(
    globals(), finishes_if={"authorized": lambda keywords: keywords.get("token", "") is None}
)
