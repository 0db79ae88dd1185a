"""What the user reads while a deployment goes on."""

from saltvirt.units import human


def teller(opts, events, name, quiet=False):
    """
    Return ``say(stage, **figures)``, which shows a line of progress at once.

    opts
        With ``--out`` the data alone is wanted, so nothing is shown.
    events
        Salt's ``__jid_event__`` of a runner.
    """
    is_silent = quiet or bool(opts.get("output"))

    def say(stage, **figures):
        if not is_silent:
            message = {"message": text(name, stage, figures), "outputter": "virt_progress"}
            events.fire_event(message, "progress")

    return say


def text(name, stage, figures):
    """Return one line for a stage of a deployment."""
    return f"{name}: {stage}{_detail(stage, figures)}"


def _detail(stage, figures):
    if stage == "Fetching":
        done, total = figures.get("done_bytes") or 0, figures.get("total_bytes")
        if total:
            return f" {100 * done // total} % of {human(total)}"
        return f" {human(done)}"
    if stage == "Moving":
        rate, left = figures.get("rate_bytes_s", 0), figures.get("remaining_bytes", 0)
        return f" {figures.get('percent', 0)} %, {human(rate)}/s, {human(left)} to go"
    if figures.get("detail"):
        return f" ({figures['detail']})"
    return ""
