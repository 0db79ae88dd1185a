"""
What masters that are cells of one cloud say of VMs and jobs, to the one above them and to you.

.. versionadded:: 1.0.0
"""

from saltvirt.errors import BadArgument
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

arguments = Later("saltvirt.arguments")
here = Later("saltvirt.fleet.cells.here")

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


@runner_function
def find(name, quiet=False):
    """
    Say where a VM is, and where it may be.

    name
        The VM's name; or several, a list or separated by commas.
    quiet
        Do not say which hypervisors are silent, and for how long. Defaults to False.

    Returns ``{name: {"hosts": {host: state}, "traces": [host], "may_have": {host: why}, "order":
    phase}}``: ``traces`` has hosts where it is being made or something of it was left,
    ``may_have`` those that had it when they were last asked and cannot be asked now, ``order`` how
    far a command of this master is with it, or None. On a master with cells, of all of them, with
    ``orders`` (``{cell: phase}``) instead, and ``failed`` where a cell did not answer.

    CLI Example:

    .. code-block:: bash

        salt-run virt.find centos1
    """
    names = arguments.names("name", name)
    if not names:
        raise BadArgument("name", "is missing; see the command's help")
    cloud = Cloud.of(__opts__, __jid_event__, "hypervisors", quiet, is_reading=True)
    return here.find(cloud, names)


@runner_function
def cell_job(jid, wait_s=20):
    """
    Say how a job of this project's runner on this master is; the master above asks this.

    jid
        The job's id.
    wait_s
        How many seconds its end is waited for, 60 at most. Defaults to 20.

    Returns ``{"state": "running" | "over" | "lost", "answer"}``; ``answer`` is what the function
    returned, None before the end. ``running`` is also one that has not begun; ``lost`` is one that
    has neither run nor left an answer for 15 seconds.

    CLI Example:

    .. code-block:: bash

        salt-run virt.cell_job 20261124202137000000 wait_s=0
    """
    wait_s = arguments.whole_number("wait_s", wait_s, least=0, most=60)
    return here.job(Cloud.of(__opts__), str(jid), wait_s)
