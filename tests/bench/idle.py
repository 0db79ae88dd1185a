"""What this project costs a hypervisor's minion that has nothing to do, beside one without it."""

TITLE = "a minion that waits for jobs, median of 5"
HEADS = ("", "CPU to load", "memory")


def rows(host, found):
    """Return the rows of the table; note the ratios in ``found``."""
    said = host.measured("idle_host.py")
    for what, name in (("seconds", "load time"), ("mib", "memory")):
        found[f"{name} of an idle minion, without"] = said["with"][what] / said["without"][what]
    return [
        (kind, f"{one['seconds']:.2f} s", f"{one['mib']:.1f} MiB") for kind, one in said.items()
    ]


def main():
    """Print these figures alone, of a lab that is up."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))
    import run
    import stage
    from labkit.settings import LabError, lab_from_environment

    try:
        host = stage.Host(lab_from_environment(), "hyper1", {})
    except LabError as error:
        sys.exit(f"bench: {error}")
    try:
        run.table(TITLE, HEADS, rows(host, {}))
    finally:
        host.clear()


if __name__ == "__main__":
    main()
