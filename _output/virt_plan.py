"""Outputter ``virt_plan``: where a VM went, or which hypervisors could take it, and why not."""

import textwrap


def output(data, **_kwargs):
    """
    Return the table of ``salt-run virt.init ... dry_run=True``, or of one that found no host.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
    """
    if not isinstance(data, dict):
        return str(data)
    if "name" in data:
        return _deployed(data)
    hosts = data.get("hosts") if "error" in data else data
    lines = _error(data["error"], hosts) if "error" in data else []
    if hosts:
        lines.append(f"{'HYPERVISOR':<16} {'FITS':<5} {'SCORE':>5}  WHY NOT")
    for host, row in sorted((hosts or {}).items(), key=lambda item: _order(*item)):
        fits = "yes" if row["fits"] else "no"
        score = f"{row['score']:.2f}" if row["fits"] else "-"
        why = textwrap.wrap("; ".join(row["reasons"]), 48, break_on_hyphens=False) or [""]
        lines.append(f"{host:<16} {fits:<5} {score:>5}  {why[0]}".rstrip())
        lines += [f"{'':<30}{line}" for line in why[1:]]
    return "\n".join(lines)


def _deployed(data):
    waited = f"; its minion answered after {data['seconds']} s" if "seconds" in data else ""
    return f"{data['name']} is on {data['host']}{waited}"


def _error(text, hosts):
    # The reasons stand in the table below it.
    said = f"error: {text.split(': ')[0] if hosts else text}"
    return textwrap.wrap(said, 78, break_on_hyphens=False)


def _order(host, row):
    return (not row["fits"], -row["score"], host)
