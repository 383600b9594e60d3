"""The jobs as Python or TOML. What is written here loads: texts are quoted by Python's and JSON's own rules."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.cli.migrate.values import Carried, FunctionCall, Imported, Send, ShellCommand
from fencepost.errors import UsageError

CALL_OPTIONS = ("queue", "exchange", "routing_key", "expires", "countdown", "eta", "serializer")
"""What `celery call` has options for."""


def in_toml(imported: Imported, title: str) -> str:
    lines = [f"# {_line(title)}", "# Run it with: fencepost run fencepost.toml"]
    for job in imported.jobs:
        lines += ["", *_comments(job), f"[jobs.{_key(job.id)}]"]
        lines += [f"{name} = {value}" for name, value in _toml_fields(job).items()]
    return "\n".join(lines) + "\n"


def in_python(imported: Imported, title: str) -> str:
    triggers = [job.trigger.to_json() for job in imported.jobs]
    kinds = sorted({str(trigger["type"]) for trigger in triggers})
    retries = any("retry" in job.policies for job in imported.jobs)
    offered = ", ".join(["Retry"] * retries + ["Scheduler", *kinds])
    moments = any({"anchor", "start", "end", "moments"} & trigger.keys() for trigger in triggers)
    head = [f"# {_line(title)}", "# Run it with: fencepost run app:scheduler, if this file is app.py", ""]
    head += ["from datetime import datetime", ""] if moments else []
    head += [f"from fencepost import {offered}", "", "scheduler = Scheduler()"]
    head += _sender(imported)
    names = _FunctionNames()
    return "\n".join([*head, *(line for job in imported.jobs for line in _python_job(job, names))]) + "\n"


# TOML.


def _toml_fields(job: Carried) -> dict[str, str]:
    command = _as_command(job)
    trigger = job.trigger.to_json()
    fields: dict[str, str] = {"command": _toml(command.command)}
    if isinstance(command.command, str):
        fields["shell"] = "true"
    match trigger["type"]:
        case "cron":
            fields |= {"cron": _toml(trigger["expression"]), "tz": _toml(trigger["tz"])}
        case "every":
            fields["every"] = _toml(_length(trigger))
        case _:
            fields["at"] = f"[{', '.join(trigger['moments'])}]"
    fields |= {name: trigger[name] for name in ("anchor", "start", "end") if name in trigger}
    if command.env:
        fields["env"] = _toml(command.env)
    if command.cwd:
        fields["cwd"] = _toml(command.cwd)
    return fields | {name: _toml(value) for name, value in job.policies.items()}


def _as_command(job: Carried) -> ShellCommand:
    body = job.body
    if isinstance(body, ShellCommand):
        return body
    if isinstance(body, FunctionCall):
        raise UsageError(
            "a job file holds commands, and these jobs call Python functions; leave --format out, or write a .py file"
        )
    if body.app is None:
        raise UsageError(
            "a job file needs the Celery app for `celery -A APP call`; give --app module:attribute"
        )
    if missing := body.options.keys() - set(CALL_OPTIONS):
        raise UsageError(
            f"{job.origin}: `celery call` has no option for {', '.join(sorted(missing))}; leave --format out, or "
            "write a .py file"
        )
    words = ["celery", "-A", body.app, "call", body.task]
    words += [f"--args={json.dumps(body.args)}"] if body.args else []
    words += [f"--kwargs={json.dumps(body.kwargs)}"] if body.kwargs else []
    words += [f"--{name.replace('_', '-')}={value}" for name, value in body.options.items()]
    return ShellCommand(words)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, str):
        # JSON's texts are TOML's; what JSON leaves as it is, and no terminal should get, is written as a number.
        text = json.dumps(_encodable(value), ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _length(trigger: Mapping[str, Any]) -> str:
    """`90m` as a job file has it, in the largest unit that fits."""
    if "microseconds" in trigger:
        return f"{trigger['microseconds'] / 1000:g}ms"
    seconds = trigger["seconds"]
    unit, size = next((unit, size) for unit, size in UNIT_SIZES if seconds % size == 0)
    return f"{seconds // size}{unit}"


UNIT_SIZES = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


# Python.


def _python_job(job: Carried, names: _FunctionNames) -> list[str]:
    options = [f"id={_quoted(job.id)}"]
    options += [f"{name}={_policy(name, value)}" for name, value in job.policies.items()]
    comments = ["", *_comments(job)] if isinstance(job.body, ShellCommand) else ["", "", *_comments(job)]
    if isinstance(job.body, ShellCommand):
        return [*comments, *_python_command(job.body, _trigger(job), options)]
    name = names.name_for(job.id)
    head = f"@scheduler.job({_trigger(job)}, {', '.join(options)})"
    if isinstance(job.body, FunctionCall):
        return [*comments, head, *_python_call(job.body, name)]
    sent = [_quoted(job.body.task)]
    sent += [repr(list(job.body.args))] if job.body.args or job.body.kwargs else []
    sent += [repr(dict(job.body.kwargs))] if job.body.kwargs else []
    sent += _keywords(job.body.options)
    return [*comments, head, f"def {name}():", f"    send({', '.join(sent)})"]


def _python_command(body: ShellCommand, trigger: str, options: list[str]) -> list[str]:
    is_text = isinstance(body.command, str)
    lines = [_command_words(body), trigger, *options]
    lines += ["shell=True"] if is_text else []
    lines += [f"env={dict(body.env)!r}"] if body.env else []
    lines += [f"cwd={_quoted(body.cwd)}"] if body.cwd else []
    return ["scheduler.command(", *(f"    {line}," for line in lines), ")"]


def _command_words(body: ShellCommand) -> str:
    if isinstance(body.command, str):
        return _quoted(body.command)
    return f"[{', '.join(map(_quoted, body.command))}]"


def _python_call(body: FunctionCall, name: str) -> list[str]:
    """The function is imported when the job runs, under a name that the job's own cannot hide."""
    first, *inner = body.function.split(".")
    args = [*map(_quoted, body.args), *_keywords(body.kwargs)]
    called = ".".join(["function", *inner])
    return [
        f"{'async ' if body.is_async else ''}def {name}():",
        f"    from {body.module} import {first} as function",
        "",
        f"    {'await ' if body.is_async else ''}{called}({', '.join(args)})",
    ]


def _keywords(values: Mapping[str, Any]) -> list[str]:
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in values):
        return [f"{name}={_quoted(value)}" for name, value in values.items()]
    return [f"**{dict(values)!r}"]


def _quoted(value: Any) -> str:
    """As Python writes it, with double quotes where that is the same text."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set('"\\')
    return f'"{value}"' if plain else repr(value)


def _sender(imported: Imported) -> list[str]:
    apps = {job.body.app for job in imported.jobs if isinstance(job.body, Send)}
    if not apps:
        return []
    app = next(iter(apps))
    module, _, attribute = (app or "celery:current_app").partition(":")
    first = attribute.split(".")[0]
    return [
        "",
        "",
        "def send(task, args=(), kwargs=None, **options):",
        '    """Give a task to Celery\'s workers."""',
        f"    from {module} import {first}",
        "",
        f"    {attribute}.send_task(task, args=args, kwargs=kwargs, **options)",
    ]


def _trigger(job: Carried) -> str:
    trigger = job.trigger.to_json()
    bounds = [f"{name}={_datetime(trigger[name])}" for name in ("anchor", "start", "end") if name in trigger]
    zone = trigger.get("tz")
    match trigger["type"]:
        case "cron":
            return f"cron({', '.join([_quoted(trigger['expression']), f'tz={_quoted(zone)}', *bounds])})"
        case "every":
            return f"every({', '.join([_interval(trigger), *bounds])})"
        case _:
            return f"at({', '.join(map(_datetime, trigger['moments']))})"


def _interval(trigger: Mapping[str, Any]) -> str:
    if "microseconds" in trigger:
        return f"seconds={trigger['microseconds'] / 1_000_000!r}"
    names = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
    seconds = trigger["seconds"]
    unit, size = next((unit, size) for unit, size in UNIT_SIZES if seconds % size == 0)
    return f"{names[unit]}={seconds // size}"


def _datetime(text: str) -> str:
    return f"datetime.fromisoformat({_quoted(text)})"


def _policy(name: str, value: Any) -> str:
    if name == "retry":
        return f"Retry({', '.join(f'{key}={item!r}' for key, item in value.items())})"
    return _quoted(value)


class _FunctionNames:
    """Names for functions, of the ids of the jobs."""

    def __init__(self) -> None:
        self._taken = {"send", "scheduler", "cron", "every", "at", "datetime", "Retry", "Scheduler"}

    def name_for(self, id: str) -> str:
        base = re.sub(r"\W", "_", id, flags=re.ASCII) or "job"
        base = f"job_{base}" if not base[0].isalpha() or keyword.iskeyword(base) else base
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def _comments(job: Carried) -> list[str]:
    notes = [f"# not carried over: {_line(f'{note.what}; {note.remedy}')}" for note in job.notes]
    return [f"# {_line(f'{job.origin}: {job.schedule}')}", *notes]


def _line(text: str) -> str:
    """One line of a comment, whatever the text holds."""
    return "".join(char if char.isprintable() else "?" for char in _encodable(" ".join(text.split())))[:300]


def _encodable(text: str) -> str:
    """JSON may hold half a character (a lone surrogate), which no file can."""
    return text.encode("utf-8", "replace").decode("utf-8")
