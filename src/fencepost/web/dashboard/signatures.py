"""A form from the parameters of a job's function, and arguments from what was filled in."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fencepost.errors import UsageError
from fencepost.model import JobRecord
from fencepost.runs.arguments import plain as arguments_plain
from fencepost.scheduler.scheduler import Scheduler
from fencepost.web.dashboard.page import Form

LONGEST = 65_536
NAMED = "arg."
"""What the fields of arguments are called, before the parameter's name."""
KINDS: Mapping[str, str] = {"bool": "yes or no", "int": "a whole number", "float": "a number", "str": "text"}


@dataclass(frozen=True)
class FormField:
    name: str
    kind: str
    """bool, int, float, str, or json."""
    value: str
    """As it stands in the form."""
    required: bool = False
    hint: str = ""

    @property
    def field(self) -> str:
        return NAMED + self.name


def fields_of(scheduler: Scheduler, record: JobRecord) -> list[FormField] | None:
    """None: what the function takes is not known here; then the arguments are one JSON object."""
    function = scheduler.function_of(record.id)
    if function is None:
        return None
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return None
    schema = scheduler.args_schema(record.job.target) or {}
    return [
        _field(each, record, schema)
        for each in parameters
        if each.kind is not inspect.Parameter.VAR_POSITIONAL and not _is_given(each, scheduler)
    ]


def _is_given(parameter: inspect.Parameter, scheduler: Scheduler) -> bool:
    """The Fire and resources come from the replica."""
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    is_fire = parameter.name == "fire" or name.rpartition(".")[2] == "Fire"
    return is_fire or parameter.name in getattr(scheduler, "resources", {})


def _field(parameter: inspect.Parameter, record: JobRecord, schema: Mapping[str, Any]) -> FormField:
    default = None if parameter.default is inspect.Parameter.empty else parameter.default
    value = record.job.args.get(parameter.name, default)
    kind = _kind(parameter.annotation, value)
    required = parameter.default is inspect.Parameter.empty
    hint = KINDS.get(kind) or _hint(schema.get("properties", {}).get(parameter.name, {}))
    return FormField(parameter.name, kind, _text(arguments_plain(value), kind), required, hint)


def _hint(schema: Mapping[str, Any]) -> str:
    """Of a model: its fields."""
    fields = schema.get("properties")
    if not fields:
        return "JSON"
    named = (f"{name} ({each['type']})" if "type" in each else name for name, each in fields.items())
    return f"an object with {', '.join(named)}, as JSON"


def _kind(annotation: Any, value: Any) -> str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if name in KINDS:
        return str(name)
    return type(value).__name__ if type(value).__name__ in KINDS else "json"


def _text(value: Any, kind: str) -> str:
    if value is None:
        return "" if kind != "json" else "null"
    if kind == "bool":
        return "true" if value is True else "false"
    if kind == "str":
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return ""


def filled(fields: list[FormField], form: Form) -> list[FormField]:
    """With what was entered, to be shown again."""
    return [replace(field, value=form.get(field.field, [field.value])[0]) for field in fields]


def arguments(fields: list[FormField], form: Form) -> dict[str, Any]:
    """Raises `UsageError` with the name of the field. What is left empty and is not required is left out."""
    found: dict[str, Any] = {}
    for field in fields:
        text = form.get(field.field, [""])[0]
        if not text.strip() and not field.required and field.kind != "str":
            continue
        found[field.name] = _value(field, text)
    return found


def _value(field: FormField, text: str) -> Any:
    if len(text) > LONGEST:
        raise UsageError(f"{field.name}: at most {LONGEST} characters")
    if field.kind == "str":
        return text
    value = parsed(text, field.name)
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if not fits.get(field.kind, True):
        raise UsageError(f"{field.name}: enter {KINDS[field.kind]}")
    return value


def parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda constant: _refuse(name, constant))
    except UsageError:
        raise
    except (ValueError, RecursionError):
        raise UsageError(f'{name}: {text[:60]!r} is no JSON; write text as "text"') from None


def _refuse(name: str, constant: str) -> Any:
    raise UsageError(f"{name}: {constant} is no JSON; write null or text")


def whole(form: Form) -> dict[str, Any] | None:
    """Of the one field for all arguments. None: the job's own."""
    text = form.get("args", [""])[0]
    if not text.strip():
        return None
    if len(text) > LONGEST:
        raise UsageError(f"arguments: at most {LONGEST} characters")
    value = parsed(text, "arguments")
    if not isinstance(value, dict):
        raise UsageError('arguments: write an object by parameter name, as {"user": 42}')
    return value
