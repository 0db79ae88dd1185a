"""
Do what the master's runner orders, and sign the answer.

.. versionadded:: 1.0.0
"""

from saltvirt.kvm import connect
from saltvirt.ops import answering

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def signed(order, **kwargs):
    """
    Do one of this project's functions for the master's runner, and sign what it answers.

    order
        ``{"fun", "arg", "kwarg"}``, or the same sealed for this minion.

    Functions of ``virt`` are done, and no others but those that the runner needs: whoever may call
    this may call no more than before. Returns ``{"said", "signature"}``; what went wrong is in it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.signed '{fun: virt.vm_state, arg: []}'
    """
    return answering.answer(
        __opts__, __salt__, __context__, str(kwargs.get("__pub_jid", "")), order
    )
