"""
Functions that ``salt-run virt.migrate`` and ``virt.settle`` call on the two hosts of a move.

.. versionadded:: 1.0.0
"""

from saltvirt.core import errors, wire
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.context import Context
from saltvirt.core.salt.lazyimport import Later
from saltvirt.libvirt import connect

answering = Later("saltvirt.core.salt.answering")
answers = Later("saltvirt.placement.answers")
arrival = Later("saltvirt.migration.host.arrival")
checks = Later("saltvirt.migration.host.arrivalchecks")
departure = Later("saltvirt.migration.host.departure")
files = Later("saltvirt.migration.host.incomingfiles")
lifecycle = Later("saltvirt.libvirt.domains.lifecycle")
movefacts = Later("saltvirt.core.journal.movefacts")
protocol = Later("saltvirt.core.protocol.moveprotocol")
reach = Later("saltvirt.migration.host.peer")
state = Later("saltvirt.migration.host.movestate")

__virtualname__ = "virt"


def __virtual__():
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def migrate_check(about, source=None):
    """
    Return the reasons why this host cannot take a VM; none if it can. Nothing is changed.

    about
        The answer of ``virt.migration_info``, for one VM or for all; for all, the function returns
        ``{name: [reason]}`` of the VMs that it cannot take.
    source
        The VM's present host; its libvirt must also accept this host. For one VM only.

    If an operator calls it, it examines only files in the folders of ``virt:images``,
    ``virt:shared_paths``, ``virt:backing_paths``, libvirt's pools, firmware, its variables and
    console logs, and names the others: callers learn nothing about other files of this host.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_check \
            "$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)"
    """
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    is_single = isinstance(about, dict) and isinstance(about.get("disks"), list)
    shape = answers.MigrationInfo if is_single else dict[str, answers.MigrationInfo]
    about = wire.argument("about", shape, about)
    reason = optionguard.refusal(globals())
    if reason:
        return [reason] if is_single else {name: [reason] for name in about}
    may_tell = answering.is_ordered()
    with connect.open_connection(settings, readonly=False) as conn:
        if not is_single:
            return checks.check_all(conn, settings, about, may_tell_paths=may_tell)
        reasons = checks.check(conn, settings, about, may_tell_paths=may_tell)
    if source:
        reach.refuse_strange("source", source)
        try:
            reach.refuse_unreachable(source)
        except errors.VirtError as exc:
            reasons.append(str(exc))
    return reasons


def migrate_begin(name, token, target):
    """
    Record the departure of a VM to another host; nothing is sent yet.

    name
        The VM's name.
    token
        A unique text for this move; virt.migrate_step needs it to end the move.
    target
        The host that takes the VM.

    Returns the answer of virt.migration_info, and ``wire``, the version of this protocol. Fails if
    another move of the VM is on record. Undo: virt.migrate_step NAME TOKEN cancel, then forget.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_begin centos1 t1 hyper2
        salt hyper1 virt.migrate_step centos1 t1 cancel seen=planned
        salt hyper1 virt.migrate_step centos1 t1 forget
    """
    reach.refuse_strange("target", target)
    context = Context.of(__opts__, __pillar__, __grains__, __salt__)
    return wire.plain(departure.begin(context, name, str(token), target))


def migrate_prepare(about, token, images_sent=False, source=None):
    """
    Reserve room for an arriving VM, and make the files that receive its disks.

    about
        The answer of ``virt.migrate_begin`` or ``virt.migration_info``.
    token
        The token of virt.migrate_begin.
    images_sent
        Continue after virt.migrate_push, after a check of the sent images. Defaults to False.
    source
        The VM's present host; its libvirt must also accept this host. Defaults to no check.

    Returns ``{"images": {digest: path}, "present": [path], "token": str}``: images that must be
    sent first, and media that exist here already. Undo: salt-run virt.settle NAME.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_prepare \
            "$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)" token=t1
        salt hyper1 virt.migrate_step centos1 t1 cancel
        salt hyper2 virt.migrate_step centos1 t1 drop
        salt hyper1 virt.migrate_step centos1 t1 forget
    """
    if source:
        reach.refuse_strange("source", source)
    context, token = Context.of(__opts__, __pillar__, __grains__, __salt__), str(token)
    moving = arrival.parse_migration_info(context, about)
    if images_sent:
        return arrival.resume(context, moving, token)
    if source:
        reach.refuse_unreachable(source)
    return arrival.prepare(context, moving, token, source)


def migration_state(name=None, token=None, uuid=None, paths=None):
    """
    Return this host's records of moves, or its state of one move.

    name
        The VM's name. Defaults to all: ``{name: [{purpose, token, phase, since, ...}]}``.
    token
        The token of one move; the function then returns ``{source, target, noted}`` to settle it.
    uuid
        The VM's UUID, for one move. Defaults to a search by name.
    paths
        The files of its disks, for one move: ``has_disks`` of ``target`` is whether this host has
        all of them. Defaults to no check.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migration_state
    """
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    if name is None or token is None:
        records = state.read_moves(settings)
        return wire.plain(
            records
            if name is None
            else {
                record_name: records[record_name] for record_name in records if record_name == name
            }
        )
    paths = None if paths is None else wire.argument("paths", list[str], paths)
    with connect.open_connection(settings, readonly=False) as conn:
        return wire.plain(state.read_state(conn, settings, name, str(token), uuid, paths))


def migrate_step(
    name,
    token,
    step,
    seen=None,
    is_refused=False,
    is_lost=False,
    is_handed=False,
    noted=None,
    keeper=None,
):
    """
    Run one step of settling a move on this host; ``salt-run virt.settle`` chooses the steps.

    name
        The VM's name.
    token
        The token of the move; no other move is ended.
    step
        On the source: ``cancel``, ``redefine``, ``finish``, ``forget``, ``give_way``. On the
        target: ``arrive``, ``refuse``, ``drop``, ``end``, ``let_go``.
    seen
        For ``cancel``: this host's phase, by ``virt.migration_state``, at the time of the decision;
        without ``seen`` the move must not be on record here.
    is_refused
        For ``cancel``: the target, asked after ``seen``, has refused the VM for good. Defaults to
        False.
    is_lost
        For ``cancel``: the operator states that the target never comes back with the VM. For
        ``drop``: that the source has the VM, although it has arrived here. Defaults to False.
    is_handed
        For ``arrive``: the VM ran here already. Defaults to False.
    noted
        For ``arrive``: the source's record, with the digests of the sent data.
    keeper
        For ``give_way`` and ``let_go``: the third host that has the VM. Files here stay.

    Returns ``{"removed": [path]}`` or ``{"warnings": [str]}``; fails with one line if the record
    does not allow the step.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_begin centos1 t1 hyper2
        salt hyper1 virt.migrate_step centos1 t1 cancel seen=planned
        salt hyper1 virt.migrate_step centos1 t1 forget
    """
    context, token = Context.of(__opts__, __pillar__, __grains__, __salt__), str(token)
    if keeper is not None:
        reach.refuse_strange("keeper", keeper)
    options = {
        protocol.CANCEL: {"seen": seen, "is_refused": is_refused, "is_lost": is_lost},
        protocol.GIVE_WAY: {"keeper": keeper},
        protocol.ARRIVE: {"is_handed": is_handed},
        protocol.DROP: {"is_lost": is_lost},
        protocol.LET_GO: {"keeper": keeper},
    }.get(step, {})
    if step in protocol.ON_SOURCE:
        return departure.step(context, name, token, step, **options)
    if step not in protocol.ON_TARGET:
        step_names = ", ".join((*protocol.ON_SOURCE, *protocol.ON_TARGET))
        raise errors.BadArgument("step", f"{step!r}; one of {step_names}")
    noted = wire.argument("noted", movefacts.Noted, noted or {})
    return arrival.step(context, name, token, step, noted=noted, **options)


def migrate_push(name, target, images):
    """
    Send cached images below a VM's disks to another host.

    name
        The VM's name.
    target
        The host that takes the VM.
    images
        ``{digest: path on the target}``, from the answer of ``virt.migrate_prepare``.

    Returns True.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_push centos1 hyper2 '{}'
    """
    reach.refuse_strange("target", target)
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    reach.send_files(settings, target, files.image_paths(settings, images))
    return True


optionguard.modules(
    globals(),
    finishes="migrate_step migrate_push",
    finishes_if={"migrate_prepare": optionguard.flag_rule("images_sent")},
)
