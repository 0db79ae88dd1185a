"""
Report on VMs and jobs of this master, to the master of its cells and to the operator.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.cells import cellside
    from saltvirt.core import arguments

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function
def find(name, quiet=False):
    """
    Return the hosts that have a VM, and those that may have it.

    name
        The VM's name; or several names, a list or separated by commas.
    quiet
        Do not report unresponsive hypervisors. Defaults to False.

    Returns ``{name: {"hosts": {host: state}, "traces": [host], "may_have": {host: why}, "order":
    phase}}``: ``traces`` are hosts with a build or a leftover of the VM, ``may_have`` unresponsive
    hosts that had it when they last answered, ``order`` is the phase of this master's command for
    the VM, or None. A master with cells queries all cells, and returns ``orders`` (``{cell:
    phase}``) instead, and ``failed`` for cells that did not answer.

    CLI Example:

    .. code-block:: bash

        salt-run virt.find centos1
    """
    names = arguments.names("name", name)
    if not names:
        raise BadArgument("name", "is missing; see the command's help")
    cloud = Cloud.of(__opts__, __jid_event__, "hypervisors", quiet, is_reading=True)
    return cellside.find(cloud, names)


@runner_function
def cell_job(jid, wait_s=20):
    """
    Return the state of a runner job on this master; for the master above.

    jid
        The job's id.
    wait_s
        Seconds to wait for its end, 60 at most. Defaults to 20.

    Returns ``{"state": "running" | "over" | "lost", "answer"}``; ``answer`` is the function's
    return value, None before the end. ``running`` includes a job that has not begun; a ``lost`` job
    has neither run nor left an answer for 15 seconds.

    CLI Example:

    .. code-block:: bash

        salt-run virt.cell_job 20261124202137000000 wait_s=0
    """
    wait_s = arguments.whole_number("wait_s", wait_s, least=0, most=60)
    return cellside.job(Cloud.of(__opts__), str(jid), wait_s)
