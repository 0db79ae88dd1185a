"""Turn our errors into what a runner must return for a readable line and a non-zero exit."""

import functools
import inspect

from saltvirt.errors import BadArgument, VirtError
from saltvirt.fleet import masteruser


def reported(function):
    """
    Let a runner function fail with one line and exit code 1.

    Salt prints a traceback for a runner that raises, and exits with 0 for wrong arguments
    (seen on 3006 and 3008); so the arguments are bound here too. The function uses files as the
    master's user, see :mod:`saltvirt.fleet.masteruser`.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args, **kwargs):
        given = {key: value for key, value in kwargs.items() if not key.startswith("__")}
        # Salt hands the job's event bus to the globals of one function of a runner: to this file's,
        # because every function of ours is wrapped here.
        function.__globals__["__jid_event__"] = globals().get("__jid_event__")
        try:
            bound = _bind(signature, function, args, given)
            with masteruser.acting(function.__globals__["__opts__"]):
                return function(*bound.args, **bound.kwargs)
        except VirtError as error:
            data = {"error": str(error), **getattr(error, "table", {}), "retcode": 1}
        except OSError as error:
            why = masteruser.why(error, function.__globals__["__opts__"])
            data = {"error": why, "retcode": 1}
        except (KeyboardInterrupt, SystemExit):
            data = {"error": "interrupted; what was begun is taken back", "retcode": 1}
        function.__globals__["__context__"]["retcode"] = 1
        return {"outputter": "virt_plan", "data": data}

    # Salt must see that anything is taken, so that the check above is the one that speaks.
    del run.__wrapped__
    return run


def _bind(signature, function, args, kwargs):
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as exc:
        name = f"virt.{function.__name__.rstrip('_')}"
        raise BadArgument(name, f"{exc}; see: salt-run -d {name}") from exc
