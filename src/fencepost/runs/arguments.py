"""Parameters that are annotated with a dataclass or a pydantic model. Their arguments are JSON in the store, checked
when a job is declared or triggered, and handed to the function as the model.

Dataclasses need nothing but the standard library. A pydantic model checks itself; it is found by what it can do, so
that pydantic is imported only by applications that use it."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin

from fencepost.errors import ConfigurationError
from fencepost.model import Json

PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
IN_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
DEEPEST = 20


class Misfit(ValueError):
    """A value that its annotation does not take. `where`: the names on the way to it."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.where, self.problem = where, problem


def models_of(function: Callable[..., Any]) -> dict[str, Any]:
    """By parameter: the model that it is annotated with."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # names that exist only for type checkers: nothing is known of them
        return {}
    return {name: hint for name, hint in hints.items() if name != "return" and is_model(_bare(hint))}


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and (is_pydantic(kind) or dataclasses.is_dataclass(kind))


def is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def converted(models: Mapping[str, Any], args: Mapping[str, Json]) -> dict[str, Any]:
    """The arguments with models in place of objects. Raises `Misfit`."""
    return {
        name: read(models[name], value, name) if name in models else value for name, value in args.items()
    }


def plain(value: Any) -> Any:
    """A model that was given in place of its JSON."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def check(models: Mapping[str, Any], args: Mapping[str, Json], what: str) -> None:
    try:
        converted(models, args)
    except Misfit as error:
        raise ConfigurationError(f"{what}: {error}") from None


def read(kind: Any, value: Json, where: str, levels: int = DEEPEST) -> Any:
    """`value` as its annotation has it."""
    if levels == 0:
        raise Misfit(where, f"is nested deeper than {DEEPEST} levels")
    if _is_optional(kind):
        if value is None:
            return None
        kind = _bare(kind)
    if is_pydantic(kind):
        return _validated(kind, value, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, where, levels)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (list, tuple) and isinstance(value, list) and inner:
        items = [read(inner[0], each, f"{where}.{number}", levels - 1) for number, each in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is dict and isinstance(value, Mapping) and len(inner) == 2:
        return {name: read(inner[1], each, f"{where}.{name}", levels - 1) for name, each in value.items()}
    if origin is typing.Literal and value not in inner:
        raise Misfit(where, f"must be one of {', '.join(map(repr, inner))}, not {value!r:.60}")
    if kind in PLAIN and not _is_plain(kind, value):
        raise Misfit(where, f"must be {IN_WORDS[kind]}, not {value!r:.60}")
    return value


def _dataclass(kind: Any, value: Json, where: str, levels: int) -> Any:
    if not isinstance(value, Mapping):
        raise Misfit(where, f"must be an object with the fields of {kind.__name__}, not {value!r:.60}")
    hints, fields = typing.get_type_hints(kind), [each for each in dataclasses.fields(kind) if each.init]
    unknown = sorted(value.keys() - {each.name for each in fields})
    missing = [each.name for each in fields if _is_required(each) and each.name not in value]
    if missing or unknown:
        raise Misfit(f"{where}.{(missing or unknown)[0]}", "is missing" if missing else "is no such field")
    read_fields = {
        name: read(hints[name], each, f"{where}.{name}", levels - 1) for name, each in value.items()
    }
    try:
        return kind(**read_fields)
    except (TypeError, ValueError) as error:  # its own checks
        raise Misfit(where, str(error)) from None


def _validated(kind: Any, value: Json, where: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValueError as error:
        errors: Any = getattr(error, "errors", None)
        first = errors(include_url=False, include_context=False, include_input=False)[0] if errors else None
        if first is None:
            raise Misfit(where, str(error)) from None
        raise Misfit(".".join([where, *map(str, first["loc"])]), first["msg"]) from None


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_plain(kind: Any, value: Json) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def _bare(kind: Any) -> Any:
    """`X | None` as X."""
    if not _is_optional(kind):
        return kind
    kinds = [each for each in get_args(kind) if each is not type(None)]
    return kinds[0] if len(kinds) == 1 else kind


# --- the schema ---------------------------------------------------------------------------------------------


def schema_of(
    function: Callable[..., Any], names: frozenset[str], required: frozenset[str], more: bool
) -> Json:
    """JSON schema of the arguments of a function."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        hints = {}
    defaults = {
        each.name: each.default
        for each in inspect.signature(function).parameters.values()
        if each.default is None or type(each.default) in PLAIN
    }
    properties = {}
    for name in sorted(names):
        properties[name] = _schema(hints.get(name, Any))
        if name in defaults:
            properties[name] = {**properties[name], "default": defaults[name]}
    schema = {"type": "object", "properties": properties, "additionalProperties": more}
    return {**schema, "required": sorted(required)} if required else schema


def _schema(kind: Any, levels: int = DEEPEST) -> dict[str, Json]:
    if levels == 0:
        return {}
    if _is_optional(kind) and _bare(kind) is not kind:
        return {"anyOf": [_schema(_bare(kind), levels - 1), {"type": "null"}]}
    if isinstance(kind, type) and is_pydantic(kind):
        found: dict[str, Json] = kind.model_json_schema()  # type: ignore[attr-defined]
        return found
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints, fields = typing.get_type_hints(kind), [each for each in dataclasses.fields(kind) if each.init]
        properties = {each.name: _schema(hints[each.name], levels - 1) for each in fields}
        needed = [each.name for each in fields if _is_required(each)]
        schema = {"title": kind.__name__, "type": "object", "properties": properties}
        return {**schema, "additionalProperties": False, **({"required": needed} if needed else {})}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (list, tuple) and inner:
        return {"type": "array", "items": _schema(inner[0], levels - 1)}
    if origin is dict and len(inner) == 2:
        return {"type": "object", "additionalProperties": _schema(inner[1], levels - 1)}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    return {"type": PLAIN[kind]} if kind in PLAIN else {}
