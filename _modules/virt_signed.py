"""
Do what the master's runner orders, and sign the answer.

.. versionadded:: 1.0.0
"""

from saltvirt import config
from saltvirt.kvm import connect
from saltvirt.later import Later

answering = Later("saltvirt.ops.answering")
ordered = Later("saltvirt.ops.ordered")

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def signed(order, small=False, **kwargs):
    """
    Do one of this project's functions for the master's runner, and sign what it answers.

    order
        ``{"fun", "arg", "kwarg", "id"}``, or the same sealed for this minion. One that has an
        ``id`` is done once, and not after ``virt.refuse_order``.
    small
        Whether the answer is packed where that is worth it. Defaults to False, as masters of
        earlier releases do not unpack it.

    Functions of ``virt`` are done, and no others but those that the runner needs: whoever may call
    this may call no more than before. Returns ``{"said", "signature"}``; what went wrong is in it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.signed '{fun: virt.vm_state, arg: []}'
    """
    return answering.answer(
        __opts__,
        __salt__,
        __context__,
        str(kwargs.get("__pub_jid", "")),
        order,
        lambda: config.host_settings(__opts__, __pillar__, __grains__),
        is_small=bool(small),
    )


def refuse_order(order_id):
    """
    Never begin an order that the master has given up, though its job may still be queued here.

    order_id
        Its id, which the master's runner has made.

    Returns ``refused`` when it is not begun and never will be, ``running`` if it is being done, and
    ``over`` if it was. Forgotten after 5,000 later ones, at the earliest.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.refuse_order 4f2c8a52c0f14de0a5f8a0a5f0f3b1c7
    """
    return ordered.refuse(config.host_settings(__opts__, __pillar__, __grains__), order_id)
