"""<clock>."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.xml import tag, yes_no

_KEYS = {"adjustment", "utc", "timezone", "timers"}
_TIMER = ("track", "tickpolicy", "frequency", "mode", "present")
_CATCHUP = ("slew", "threshold", "limit")


def element(clock):
    """Return <clock> of ``{utc, adjustment, timezone, timers}``; UTC by default."""
    clock = clock or {}
    refuse_unknown_keys("clock", clock, _KEYS)
    if clock.get("timezone"):
        attributes = {"offset": "timezone", "timezone": clock["timezone"]}
    else:
        attributes = {"offset": "utc" if clock.get("utc", True) else "localtime"}
    adjustment = clock.get("adjustment")
    if adjustment is not None and adjustment != "reset":
        basis = attributes["offset"]
        attributes = {"offset": "variable", "adjustment": int(adjustment), "basis": basis}
    elif adjustment == "reset":
        attributes["adjustment"] = "reset"
    timers = (clock.get("timers") or {}).items()
    return tag("clock", attributes, *[_timer(name, timer) for name, timer in timers])


def _timer(name, timer):
    refuse_unknown_keys(f"clock:timers:{name}", timer, {*_TIMER, *_CATCHUP})
    attributes = {key: timer.get(key) for key in _TIMER}
    if attributes["present"] is not None:
        attributes["present"] = yes_no(attributes["present"])
    catchup = {key: timer[key] for key in _CATCHUP if timer.get(key) is not None}
    return tag("timer", {"name": name, **attributes}, tag("catchup", catchup) if catchup else None)
