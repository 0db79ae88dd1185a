"""
Control one VM wherever it is: find the host that has it, and have it do what is asked.

.. versionadded:: 1.0.0
"""

from saltvirt import config
from saltvirt.fleet import deploy, find
from saltvirt.fleet.report import reported

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


def _act(fun, name, done):
    settings = config.master_settings(__opts__)
    host = find.locate(__opts__, settings, name)
    deploy.act(__opts__, settings, host, fun, name)
    return {host: {name: done}}


@reported
def start(name):
    """
    Start a VM wherever it is.

    name
        The VM's name.

    Returns ``{host: {name: "started"}}``. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt-run virt.start centos1
    """
    return _act("virt.start", name, "started")


@reported
def stop(name):
    """
    Stop a VM at once, as pulling its plug would.

    name
        The VM's name.

    Returns ``{host: {name: "stopped"}}``. Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop centos1
    """
    return _act("virt.stop", name, "stopped")


def force_off(name):
    """
    Stop a VM at once: the old name of ``virt.stop``.

    name
        The VM's name.

    CLI Example:

    .. code-block:: bash

        salt-run virt.force_off centos1
    """
    return stop(name)


@reported
def shutdown(name):
    """
    Ask a VM's guest to shut down.

    name
        The VM's name.

    Returns ``{host: {name: "asked to shut down"}}``. Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt-run virt.shutdown centos1
    """
    return _act("virt.shutdown", name, "asked to shut down")


@reported
def reset(name):
    """
    Reset a VM at once, as its reset button would.

    name
        The VM's name.

    Returns ``{host: {name: "reset"}}``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.reset centos1
    """
    return _act("virt.reset", name, "reset")


@reported
def pause(name):
    """
    Pause a VM.

    name
        The VM's name.

    Returns ``{host: {name: "paused"}}``. Undo: virt.resume.

    CLI Example:

    .. code-block:: bash

        salt-run virt.pause centos1
    """
    return _act("virt.pause", name, "paused")


@reported
def resume(name):
    """
    Let a paused VM go on.

    name
        The VM's name.

    Returns ``{host: {name: "resumed"}}``. Undo: virt.pause.

    CLI Example:

    .. code-block:: bash

        salt-run virt.resume centos1
    """
    return _act("virt.resume", name, "resumed")
