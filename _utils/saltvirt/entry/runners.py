"""
Run runner functions, and print their answers where an operator waits for them.

An answer and its view are apart. The answer is the data that programs get: it stays as it is from
release to release, and where Salt 3006 had one, in its shape. The view is what a person sees of it
in a terminal: a table or sentences, see :mod:`saltvirt.entry.views`.

Every caller gets plain data; a failure is ``{"error": one line, ..., "retcode": 1}``. Salt's
``{"outputter", "data"}`` would reach all callers as it is, and Salt takes such an answer for a
state's, and so for a failure. So the outputter is chosen only where Salt prints to a terminal.
"""

import functools
import inspect
import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import salt.output
import salt.payload

from saltvirt.cells import registry
from saltvirt.cluster import masterconfig, progress
from saltvirt.cluster.rpc import eventbus
from saltvirt.core import terminal, undo
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.salt import compat, gctuning, masteruser
from saltvirt.core.salt.lazyimport import lazy_imports

# Only masters with cells need these.
with lazy_imports():
    from saltvirt.cells import cellside, routes, run
    from saltvirt.entry import views

log = logging.getLogger(__name__)
# Allowed on a master of any release: one names its release, the other shuts a host out.
_ALWAYS = ("virt.audit", "virt.disallow")
# Key of the failed job in ``__context__``, which outlives the job.
_FAILED_JOB = "saltvirt_failed_job"
# Outputters that indent each line of a text, so that no line imitates a row of a table.
_KEEP_LINES = ("virt_vms",)
# Deeper than the texts in their answers.
_TEXT_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    """
    What a runner function returns if its view needs more data than its answer has.

    view
        Data of a view, see :mod:`saltvirt.entry.views`, made only if :func:`is_view_wanted`; None
        for no view.
    """

    answer: Any
    view: Mapping[str, Any] | None


def is_view_wanted(opts: Mapping[str, Any], job: Any) -> bool:
    """Return whether a person will see the answer: Salt prints it, without ``--out``."""
    return bool(job and job.print_func) and not opts.get("output")


def load_always() -> bool:
    """Load on each master: it needs no libvirt."""
    return True


def runner_function(
    function: Any = None, *, outputter: str | None = None, streams: bool = False
) -> Any:
    """
    Let a runner function return plain data that salt-run shows as a table, and fail with one line.

    outputter
        Our outputter for the answer; ``--out`` overrules it. Defaults to the function's view, else
        to ``virt_done``, and to ``virt_plan`` for a failure.
    streams
        With ``stream=True`` the function prints lines of JSON itself, where these are wanted: Salt
        prints no answer after them, and a failure is such a line, too. Defaults to False.

    A failure's exit code is 1, and its step of an orchestration is ``result: False``. Salt prints a
    traceback for a runner that raises, and exits with 0 for wrong arguments (seen on 3006 and
    3008); so the arguments are bound here, too. The function uses files as the master's user, see
    :mod:`saltvirt.core.salt.masteruser`. On a master with cells the call goes where it belongs, see
    :mod:`saltvirt.cells.run`; so functions of ``virt`` take ``cell``, too.
    """
    if function is None:
        return functools.partial(runner_function, outputter=outputter, streams=streams)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        module = function.__globals__
        user_kwargs = {k: v for k, v in kwargs.items() if k[:2] != "__"}
        module["__jid_event__"] = job = _job()
        _forget_failure(module["__context__"], job)
        line = None
        try:
            cell = user_kwargs.pop("cell", None) if _is_of_cloud(function) else None
            bound = _bind(signature, function, args, user_kwargs)
            line = _lines(streams, bound, module["__opts__"], job)
            # From Salt, Ctrl-C arrives as SystemExit; so do SIGTERM and a closed terminal.
            with (
                gctuning.collect_rarely(),
                undo.on_signals(),
                masteruser.as_master_user(module["__opts__"]),
            ):
                data, view = _split(_dispatch(function, job, bound, cell))
                data = _sendable(data, job)
        except VirtError as error:
            failure = {"error": str(error), **getattr(error, "table", {})}
        except OSError as error:
            failure = {"error": masteruser.explain_error(error, module["__opts__"])}
        except (KeyboardInterrupt, SystemExit):
            failure = {"error": "interrupted; unfinished steps were undone or completed"}
        else:
            show = functools.partial(_find_view, function, bound.arguments, outputter, data, view)
            _print_by(job, data, show, line and _nothing, module["__opts__"])
            eventbus.cut_large_answer(job, data, module["__opts__"])
            return data
        _note_failure(module["__context__"], job)
        # salt-run exits with this code.
        data = _sendable({**failure, "retcode": 1}, job)
        instead = line and functools.partial(line, data)
        shown = outputter or "virt_plan", data
        _print_by(job, data, lambda: shown, instead, module["__opts__"])
        if job and job.print_func and _is_gone(job, module["__opts__"]):
            # Salt fails at notifying the master first, and then shows nothing.
            job.print_func("ret", {"return": data})
        return data

    out = _kept_for_above(function, call)
    # Salt must see a signature that takes anything, so that _bind reports wrong arguments.
    del out.__wrapped__
    return out


def _split(result: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Return a function's answer, and the view that it has made."""
    return (result.answer, result.view) if isinstance(result, Viewed) else (result, None)


def _find_view(
    function: Any,
    arguments: Mapping[str, Any],
    outputter: str | None,
    data: Any,
    view: Mapping[str, Any] | None,
) -> tuple[str, Any]:
    """Return the outputter of a function's answer, and the data that it gets."""
    if view is None:
        view = views.find(_name(function), data, arguments)
    if view is None:
        return outputter or "virt_done", data
    return "virt_table" if "rows" in view else "virt_done", view


def _kept_for_above(function: Any, call: Callable[..., Any]) -> Any:
    """Keep the answers to orders of a master above, which has this master as a cell."""

    @functools.wraps(call)
    def kept(*args: Any, **kwargs: Any) -> Any:
        # A master above calls with LOCAL; its questions are over in seconds and need no copy.
        is_order = kwargs.get("cell") == registry.LOCAL and _is_of_cloud(function)
        if not is_order or _name(function) in routes.QUESTIONS:
            return call(*args, **kwargs)
        try:
            answer = call(*args, **kwargs)
        except Exception as failed:
            _keep(function, f"Exception occurred in runner {_name(function)}: {failed}")
            raise
        _keep(function, answer)
        return answer

    return kept


def _keep(function: Any, answer: Any) -> None:
    job, opts = _job(), function.__globals__["__opts__"]
    if job is None:
        return
    try:
        with masteruser.as_master_user(opts):
            cellside.keep_answer(opts, _jid(job), answer)
    except (OSError, VirtError) as error:
        # The call is done all the same; the master above learns that the answer is lost.
        log.error("the answer of job %s was not kept: %s", job.base, error)


def _jid(job: Any) -> str:
    return str(job.base.rpartition("/")[2])


def _job() -> Any:
    """
    Return Salt's ``__jid_event__``, None outside a job.

    Salt puts it into the globals of a runner's function: into this file's, as every function of
    ours is wrapped here. It is a weak reference, and outlives its job there.
    """
    job = globals().get("__jid_event__")
    try:
        return job if job is not None and job.base else None
    except ReferenceError:
        return None


def _is_gone(job: Any, opts: Mapping[str, Any]) -> bool:
    """Return whether the master took events of this job, and takes none any more."""
    # If no master took events from the beginning, Salt expects none.
    if not getattr(job.event, "cpush", False) or opts.get("ipc_mode") == "tcp":
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"{opts['sock_dir']}/master_event_pull.ipc")
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False


def _sendable(data: Any, job: Any) -> Any:
    """Return data that Salt can send: lone surrogates, as in file names, are made visible."""
    try:
        if job:
            salt.payload.dumps(data, use_bin_type=True)
    except UnicodeEncodeError:
        return terminal.clean(data)
    return data


def _note_failure(context: dict[str, Any], job: Any) -> None:
    """Mark the job as failed for Salt's events, job cache and orchestrations."""
    context["retcode"] = 1
    context[_FAILED_JOB] = job and job.base


def _lines(
    streams: bool, bound: inspect.BoundArguments, opts: Mapping[str, Any], job: Any
) -> Callable[[Mapping[str, Any]], None] | None:
    is_wanted = streams and bound.arguments.get("stream") is True
    return progress.lines(opts, job) if is_wanted else None


def _nothing() -> None:
    """Print nothing: the lines were printed already."""


def _forget_failure(context: dict[str, Any], job: Any) -> None:
    """Clear the failure of an earlier job: a client keeps its context for all of them."""
    if context.get(_FAILED_JOB, job and job.base) != (job and job.base):
        del context[_FAILED_JOB]
        context.pop("retcode", None)


def _print_by(
    job: Any,
    data: object,
    find_view: Callable[[], tuple[str, Any]],
    instead: Callable[[], None] | None = None,
    opts: Mapping[str, Any] | None = None,
) -> None:
    """
    Have Salt print a job's answer escaped and by one of our outputters, if it prints one.

    job
        Salt's ``__jid_event__``; it prints where an operator waits for the job, as in salt-run.
    find_view
        Returns the outputter, and the data that it gets. With ``--out`` the answer itself is shown.
    instead
        Prints the answer. Defaults to Salt.
    opts
        The master's options; with ``output: json`` JSON's own escapes keep the data whole.

    The answer of a runner or an orchestration that only called our function stays as it is.
    """
    shown = job and job.print_func
    if shown is None:
        return

    def show(suffix: str, event: Mapping[str, Any]) -> None:
        if suffix != "ret" or event.get("return") is not data:
            shown(suffix, event)
        elif instead is not None:
            instead()
        elif (opts or {}).get("output") != "json" or not _show_json(data, opts or {}):
            outputter, shown_data = find_view()
            _show(shown, event, outputter, data if (opts or {}).get("output") else shown_data)

    job.print_func = show


def _show(
    shown: Callable[..., None], event: Mapping[str, Any], outputter: str, data: object
) -> None:
    event = {**event, "return": _visible(data, keeps_lines=outputter in _KEEP_LINES)}
    try:
        shown("ret", {**event, "outputter": outputter})
    except ValueError:
        # A cell's answer is mostly unchecked, so our outputter may fail; Salt handles other errors.
        shown("ret", event)


def _visible(data: object, *, keeps_lines: bool = False) -> object:
    """Return data without characters, in keys and texts, that a terminal would obey."""
    try:
        return terminal.clean(data, -_TEXT_DEPTH if keeps_lines else 0, kept_chars="")
    except ValueError as error:
        return f"this answer cannot be shown: {error}; --out=json shows it"


def _show_json(data: object, opts: Mapping[str, Any]) -> bool:
    """
    Print Salt's JSON of data, with JSON's own escapes for what is not visible.

    Returns False, and prints nothing, if Salt's JSON has nothing to escape, or with ``quiet``.
    Programs read the same data from both.
    """
    text = str(salt.output.out_format(data, "json", opts))
    escaped = re.sub("[^\n -~]", lambda match: _json_letter(match[0]), text)
    if escaped == text or opts.get("quiet"):
        return False
    # Salt would encode this text as JSON again.
    plain = {key: value for key, value in opts.items() if key != "output"}
    salt.output.display_output(escaped, "virt_progress", plain)
    return True


def _json_letter(letter: str) -> str:
    return letter if terminal.escape(letter) == letter else json.dumps(letter)[1:-1]


def _dispatch(function: Any, job: Any, bound: inspect.BoundArguments, cell: Any) -> Any:
    """Call a function of ours, here or on a master that is a cell of this one."""
    if _name(function) not in _ALWAYS:
        compat.refuse_old_master()
    opts = function.__globals__["__opts__"]
    masterconfig.refuse_changes(opts, _name(function), {**bound.arguments, **bound.kwargs})
    if cell is None and not (_is_of_cloud(function) and registry.is_configured(opts)):
        return function(*bound.args, **bound.kwargs)
    cell_call, jid = _cell_call(function, bound, cell), _jid(job) if job else None

    def run_here(local_call: Any) -> Any:
        values, kwargs = local_call.as_given()
        result = function(*values, **kwargs)
        # The answers of cells are merged; a view of this master's hosts alone is not whole then.
        return result if cell == registry.LOCAL else _split(result)[0]

    return run.command(opts, job, jid, cell_call, run_here)


def _cell_call(function: Any, bound: inspect.BoundArguments, cell: Any) -> Any:
    """Return a call as cells take it: with its arguments by name."""
    arguments, args, leading = dict(bound.arguments), (), list[str]()
    names_before: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name, {})
        if parameter.kind is parameter.VAR_POSITIONAL:
            args, leading = arguments.pop(name, ()), [*names_before]
        names_before.append(name)
    return routes.Call(
        fun=_name(function),
        arguments=arguments,
        args=tuple(args),
        leading=tuple(leading),
        cell=cell,
    )


def _is_of_cloud(function: Any) -> bool:
    return _name(function).startswith("virt.")


def _name(function: Any) -> str:
    """Return the name of a runner function, such as ``virt.init``."""
    module = function.__globals__.get("__virtualname__", "virt")
    return f"{module}.{function.__name__.rstrip('_')}"


def _bind(
    signature: inspect.Signature, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as exc:
        name = _name(function)
        raise BadArgument(name, f"{exc}; see: salt-run -d {name}") from exc
