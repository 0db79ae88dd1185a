"""What the user reads while a deployment goes on."""

from saltvirt.units import human


def text(name, stage, figures):
    """Return one line for a stage of a deployment."""
    return f"{name}: {stage}{_detail(stage, figures)}"


def _detail(stage, figures):
    if stage == "Fetching":
        done, total = figures.get("done_bytes") or 0, figures.get("total_bytes")
        if total:
            return f" {100 * done // total} % of {human(total)}"
        return f" {human(done)}"
    if figures.get("detail"):
        return f" ({figures['detail']})"
    return ""
