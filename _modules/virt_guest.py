"""
Query the agent in a guest (package ``qemu-guest-agent``), and run commands through it.

A guest is not trusted: its answers are validated, bounded and escaped, and only shown.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of every function override
``virt:connection:uri`` and ``virt:connection:auth``.
"""

from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import guestagent
    from saltvirt.vm.guest.host import inguest

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def guest_info(vm_, **kwargs):
    """
    Return a running guest's information about itself, by its agent.

    vm_
        The VM's name.

    Returns ``{agent, hostname, os: {id, name, pretty_name, version, version_id, variant, machine,
    kernel_release, kernel_version}, timezone: {name, offset_s}, users: [{name, domain, login_s}],
    filesystems: [{name, mountpoint, type, total_bytes, used_bytes}], interfaces: [{name, mac,
    addresses: [{address, prefix}]}], unavailable: {part: why}}``; ``agent`` is its version,
    ``login_s`` seconds since 1970. Missing values are None. Texts have at most 1024
    characters, lists 256 entries. Fails if no agent answers.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.guest_info centos1
    """
    with _module.connection("virt.guest_info", kwargs) as conn:
        return inguest.read_info(guestagent.Agent(conn, vm_))


def guest_exec(vm_, *command, **kwargs):
    """
    Run a command in a running guest, by its agent and without a shell, and wait for its end.

    vm_
        The VM's name.
    command
        A program of the guest and its arguments, as a list or one by one. Use a list for words with
        a leading hyphen or a ``=``, which Salt's command line would parse. Quote words that YAML
        reads as numbers, such as ``22:00`` (1320) and ``1.10`` (1.1).
    stdin
        A text for its standard input, of at most 1 MiB. Defaults to none.
    timeout_s
        Seconds to wait, 1 to 3600. Defaults to 60. A longer command continues in the guest.
    output_bytes
        Limit of each kind of output, up to 2097152. Defaults to 65536.

    Returns ``{exit_code, signal, stdout, stderr, truncated}``; if a signal ended the command,
    ``exit_code`` is None. Control characters other than newline and tab are written as
    escapes. The exit code of ``salt`` is 1 unless the command's is 0. Command, input and output are
    in the job cache: give no secret. Fails if no agent answers, or if the guest does not allow
    ``guest-exec``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.guest_exec centos1 "[uname, -r]"
    """
    stdin, timeout_s = kwargs.pop("stdin", None), kwargs.pop("timeout_s", 60)
    output_bytes = kwargs.pop("output_bytes", 65536)
    request = inguest.parse_command(command, stdin, timeout_s, output_bytes)
    with _module.connection("virt.guest_exec", kwargs) as conn:
        result = inguest.run(guestagent.Agent(conn, vm_), request)
    if result.exit_code != 0:
        __context__["retcode"] = 1
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.is_cut,
    }


optionguard.modules(globals())
