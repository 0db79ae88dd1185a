"""
Functions that ``salt-run virt.migrate`` and ``virt.settle`` call on the two hosts of a move.

.. versionadded:: 1.0.0
"""

from saltvirt.core import errors, wire
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.core.journal import movefacts
    from saltvirt.core.protocol import moveprotocol
    from saltvirt.core.salt import answering
    from saltvirt.migration.host import (
        arrival,
        arrivalchecks,
        departure,
        incomingfiles,
        movestate,
        peer,
    )
    from saltvirt.placement import answers

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


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
    is_single = isinstance(about, dict) and isinstance(about.get("disks"), list)
    shape = answers.MigrationInfo if is_single else dict[str, answers.MigrationInfo]
    about = wire.argument("about", shape, about)
    reason = optionguard.refusal(globals())
    if reason:
        return [reason] if is_single else {name: [reason] for name in about}
    may_tell = answering.is_ordered()
    with _module.opened() as (conn, settings):
        if not is_single:
            return arrivalchecks.check_all(conn, settings, about, may_tell_paths=may_tell)
        reasons = arrivalchecks.check(conn, settings, about, may_tell_paths=may_tell)
    if source:
        peer.refuse_strange("source", source)
        try:
            peer.refuse_unreachable(source)
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
    peer.refuse_strange("target", target)
    context = _module.context()
    return wire.plain(departure.begin(context, name, str(token), target))


def migrate_prepare(about, images_sent=False, source=None, token=None):
    """
    Reserve room for an arriving VM, and make the files that receive its disks.

    about
        The answer of ``virt.migrate_begin`` or ``virt.migration_info``.
    images_sent
        Continue after virt.migrate_push, after a check of the sent images. Defaults to False.
    source
        The VM's present host; its libvirt must also accept this host. Defaults to no check.
    token
        The token of virt.migrate_begin; a call without it is refused.

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
    if token is None:
        raise errors.BadArgument("token", "is missing; salt-run virt.migrate passes one")
    if source:
        peer.refuse_strange("source", source)
    context, token = _module.context(), str(token)
    moving = arrival.parse_migration_info(context, about)
    if images_sent:
        return arrival.resume(context, moving, token)
    if source:
        peer.refuse_unreachable(source)
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
    if name is None or token is None:
        records = movestate.read_moves(_module.settings())
        return wire.plain({vm: rows for vm, rows in records.items() if name in (None, vm)})
    paths = None if paths is None else wire.argument("paths", list[str], paths)
    with _module.opened() as (conn, settings):
        return wire.plain(movestate.read_state(conn, settings, name, str(token), uuid, paths))


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
    context, token = _module.context(), str(token)
    if keeper is not None:
        peer.refuse_strange("keeper", keeper)
    options = {
        moveprotocol.CANCEL: {"seen": seen, "is_refused": is_refused, "is_lost": is_lost},
        moveprotocol.GIVE_WAY: {"keeper": keeper},
        moveprotocol.ARRIVE: {"is_handed": is_handed},
        moveprotocol.DROP: {"is_lost": is_lost},
        moveprotocol.LET_GO: {"keeper": keeper},
    }.get(step, {})
    if step in moveprotocol.ON_SOURCE:
        return departure.step(context, name, token, step, **options)
    if step not in moveprotocol.ON_TARGET:
        step_names = ", ".join((*moveprotocol.ON_SOURCE, *moveprotocol.ON_TARGET))
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
    peer.refuse_strange("target", target)
    settings = _module.settings()
    peer.send_files(settings, target, incomingfiles.image_paths(settings, images))
    return True


optionguard.modules(
    globals(),
    finishes="migrate_step migrate_push",
    finishes_if={"migrate_prepare": optionguard.flag_rule("images_sent")},
)
