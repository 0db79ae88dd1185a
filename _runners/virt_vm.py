"""
Show one VM from the master; nothing is changed.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.guest.master import reachvm

__virtualname__ = "virt"
__virtual__ = load_always


def _cloud(name, quiet=False):
    return Cloud.of(__opts__, __jid_event__, name, quiet, is_reading=True)


@runner_function(outputter="virt_query")
def vm_info(name, quiet=False):
    """
    Show one VM.

    name
        The VM's name.
    quiet
        Do not report unresponsive hypervisors. Defaults to False.

    Returns ``{host: {name: {...}}}`` as the module's ``virt.vm_info``, with the VM's addresses and
    the command that logs in. If its host knows no address, the runner asks the VM's minion; then
    ``addresses_from`` is ``minion``. All sources except ``lease`` are the untrusted guest's.
    ``mem`` and ``maxMem`` are in KiB, disk sizes in bytes; the table shows units, ``--out=json``
    shows everything. If the host where the VM was last seen still has it, no other host is asked;
    virt.list, virt.query and commands that change the VM find a second VM of that name. Fails if no
    host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_info centos1
        salt-run virt.vm_info centos1 --out=json
    """
    name = arguments.text("name", name)
    return reachvm.vm_info(_cloud(name, quiet), name)


@runner_function
def console_log(name, lines=20):
    """
    Show the end of a VM's serial console.

    name
        The VM's name.
    lines
        How many lines at most. Defaults to 20.

    Returns the text, without control characters, and at most 200 characters of each line. Fails if
    no host has the VM, or if its console is not logged (``virt:console_log``).

    CLI Example:

    .. code-block:: bash

        salt-run virt.console_log centos1 lines=5
    """
    vm, count = arguments.vm_name(name), arguments.whole_number("lines", lines, most=10000)
    return reachvm.console_log(_cloud(vm), vm, count)
