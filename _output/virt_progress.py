"""Outputter ``virt_progress``: one line for each stage of a deployment, as it happens."""


def output(data, **_kwargs):
    """
    Return the line of one progress event.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
    """
    return str(data.get("event", {}).get("message", "")) if isinstance(data, dict) else str(data)
