"""
Query the agents in guests, and run commands through them, wherever the VMs are.

.. versionadded:: 1.1.0

A guest is not trusted: its answers are bounded and escaped, and only shown. ``name`` is a VM's
name; or a list of names, or a glob such as ``'web*'``, for several VMs: then the answer is
``{"vms": {name: {"host", "outcome", "error"}}}``.
"""

from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.command.master import vmcommand

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_vms")
def guest_info(name, *, max_parallel=8):
    """
    Return a running guest's information about itself, by its agent.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {...}}}`` with the answer of the module's ``virt.guest_info``. Fails
    if no agent answers.

    CLI Example:

    .. code-block:: bash

        salt-run virt.guest_info centos1
    """
    return vmcommand.run(__opts__, __jid_event__, "guest_info", name, max_parallel=max_parallel)


@runner_function(outputter="virt_vms")
def guest_exec(name, *command, dry_run=False, max_parallel=8, **options):
    """
    Run a command in a running guest, by its agent and without a shell, and wait for its end.

    name
        The VM's name; a list of names or a glob for several VMs.
    command
        A program of the guest and its arguments, as a list or one by one; see the module's
        ``virt.guest_exec`` for words that need a list or quotes.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.
    options
        ``stdin``, ``timeout_s`` and ``output_bytes``, as in the module's ``virt.guest_exec``.

    Returns ``{host: {name: {exit_code, signal, stdout, stderr, truncated}}}``. Fails if the
    command's exit code is not 0; then, and of several VMs, the answer has ``{"vms": {name:
    {"host", "outcome", "error"}}}``. Command, input and output are in the job cache: give no
    secret. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt-run virt.guest_exec centos1 "[uname, -r]"
    """
    flags = {"dry_run": dry_run, "max_parallel": max_parallel}
    return vmcommand.run(
        __opts__, __jid_event__, "guest_exec", name, *command, kwarg=options, **flags
    )
