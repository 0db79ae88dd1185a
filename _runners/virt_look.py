"""
Show hypervisors and their VMs from the master; nothing is changed.

.. versionadded:: 1.0.0

``unreachable`` lists hypervisors that did not answer, ``failed`` those that answered with an error,
``last_seen`` the VMs that these had when they last answered, ``duplicates`` VMs that several hosts
have. The runner waits for an unresponsive host two seconds longer than for the others. A master
with cells queries all cells, or those of ``cell=``, and calls their hosts ``CELL/HOST``. The old
names ``hyper_info`` and ``next_hyper`` stay.
"""

from saltvirt.cluster import progress
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import hostwords
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import Viewed, is_view_wanted, load_always, runner_function

with lazy_imports():
    from saltvirt.cluster.inventory import inventory, listing, vmtable
    from saltvirt.core import model, vmfilter
    from saltvirt.placement import choose

__virtualname__ = "virt"
__virtual__ = load_always
__func_alias__ = {"list_": "list"}


def _reading(quiet=False):
    return Cloud.of(__opts__, __jid_event__, "hypervisors", quiet, is_reading=True)


def _lines(stream):
    return progress.lines(__opts__, __jid_event__) if stream else None


@runner_function(outputter="virt_query", streams=True)
def query(
    host=None,
    quiet=False,
    name=None,
    state=None,
    tag=None,
    fields=None,
    sort=None,
    limit=None,
    offset=0,
    stream=False,
):
    """
    Show every hypervisor with all its VMs, or some.

    host
        Only these hypervisors: ids and globs, a list or separated by commas.
    quiet
        Do not report unresponsive hypervisors. Defaults to False.
    name
        Only VMs with these names or globs.
    state
        Only VMs in these states: ``running``, ``paused``, ``shutdown``, ``crashed``.
    tag
        Only VMs with all of these: affinity and anti-affinity groups, and ``hold``.
    fields
        The fields of each VM, such as ``state,mem``: keys of ``vm_info``. Defaults to all.
    sort
        ``host`` (default), or ``memory``, ``cpu`` (not used) or ``vms`` (how many), the most first.
    limit, offset
        This many hypervisors, after skipping so many; the rest is not queried. Default to all.
    stream
        Print each hypervisor as it answers, one JSON line ``{"host": id, "answer": {…}}``, then
        those that fail (``failed``) or do not answer (``unreachable``). Not with ``sort``, nor
        with ``limit`` and ``name``, ``state`` or ``tag``. Defaults to False.

    Returns ``{host: {freecpu, freemem, node_info, vm_info}}``, ``freemem`` in MiB, with
    ``unreachable`` and ``failed`` where there are such hosts. With ``name``, ``state`` or ``tag``
    only hosts with such VMs, and each sends only these.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query
        salt-run virt.query hyper1 --out=json
        salt-run virt.query name='web*' state=running fields=mem,cpu sort=memory limit=10
        salt-run virt.query state=running stream=True
    """
    vms = vmfilter.from_call(name, state, tag, fields)
    look = listing.from_call(host, vms, sort=sort, limit=limit, offset=offset, stream=stream)
    line = _lines(stream)
    return listing.query(_reading(quiet or line), look, line)


@runner_function(outputter="virt_table", streams=True)
def list_(
    host=None,
    quiet=False,
    hyper=None,
    name=None,
    state=None,
    tag=None,
    sort=None,
    limit=None,
    offset=0,
    stream=False,
):
    """
    List the VMs of every hypervisor.

    host, hyper
        Only these hypervisors: ids and globs. If it matches no hypervisor, it is the ``name``.
    quiet
        Do not report unresponsive hypervisors. Defaults to False.
    name, state, tag
        Only such VMs, as in virt.query.
    sort
        ``host`` or ``vms`` (their number, the most first) sorts hypervisors. In a terminal also
        ``name``, ``state``, ``cpu``, ``memory``, ``disk`` or ``age`` of the VMs. Defaults to
        ``host``, in a terminal to ``name``.
    limit, offset
        So many hypervisors, after so many. Defaults to all.
    stream
        Print each hypervisor as it answers, as in virt.query. Defaults to False.

    A terminal shows a table of VMs, with those of unresponsive hypervisors as last seen. Programs
    and ``--out=json`` get ``{host: {state: [name]}}``; with ``name``, ``state`` or ``tag`` only
    hosts that have such VMs.

    CLI Example:

    .. code-block:: bash

        salt-run virt.list
        salt-run virt.list 'web*' state=running sort=memory
        salt-run virt.list name='web*,db*' state=shutdown --out=json
        salt-run virt.list stream=True
    """
    line = _lines(stream)
    cloud = _reading(quiet or line)
    first = hostwords.either(host or None, "hyper", hyper or None)
    is_vm = vmtable.is_vm_name(cloud, first, name)
    hosts, names = (None, first) if is_vm else (first, name)
    vm_sort, host_sort = vmtable.split_sort(sort)
    vms = vmfilter.from_call(names, state, tag)
    look = listing.from_call(hosts, vms, sort=host_sort, limit=limit, offset=offset, stream=stream)
    if line is None and is_view_wanted(__opts__, __jid_event__):
        answer, view = vmtable.show(cloud, look, vm_sort)
    else:
        answer, view = listing.listed(cloud, look, line), None
    if is_vm and line is None:
        vmtable.refuse_unknown(first, vms, answer)
    return Viewed(answer=answer, view=view)


@runner_function(outputter="virt_hosts", streams=True)
def host_info(host=None, fields=None, sort=None, limit=None, offset=0, quiet=False, stream=False):
    """
    Show the resources of every hypervisor, and what is promised to VMs.

    host
        Only these hypervisors: ids and globs.
    fields
        The fields of each host, such as ``cpu,memory``. Defaults to all.
    sort
        ``host`` (default), or ``memory``, ``cpu``, ``disk`` (free to promise) or ``vms``, the
        most first.
    limit, offset
        So many hypervisors, after so many. Defaults to all.
    quiet
        Do not report unresponsive hypervisors. Defaults to False.
    stream
        Print each hypervisor as it answers, as in virt.query. Defaults to False.

    Returns ``{host: answer of the module's virt.host_info}``; sizes in MiB.

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_info
        salt-run virt.host_info hyper1 --out=json
        salt-run virt.host_info sort=memory limit=3
        salt-run virt.host_info fields=memory stream=True
    """
    vms = vmfilter.from_call(fields=fields, known=listing.HOST_FIELDS)
    look = listing.from_call(host, vms, sort=sort, limit=limit, offset=offset, stream=stream)
    line = _lines(stream)
    return listing.host_info(_reading(quiet or line), look, line)


hyper_info = host_info


@runner_function
def next_host():
    """
    Return the hypervisor with the most room: the next VM goes there if VMs are spread.

    This function ignores ``virt:placement: pack``, ``virt:spread_over`` and ``virt:headroom``; use
    ``virt.init`` with ``dry_run=True`` instead. Returns the minion id; fails if no hypervisor takes
    VMs.

    CLI Example:

    .. code-block:: bash

        salt-run virt.next_host
    """
    cloud = _reading()
    overview = inventory.overview(cloud, "virt.host_info")
    if not overview.answers:
        raise overview.no_answers_error()
    required = model.Requirements(name="the next VM", vcpus=1, memory_mib=1)
    return choose.choose(overview.answers, required, cloud.settings.weights)[0].host


next_hyper = next_host
