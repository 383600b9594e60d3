"""Values written in Python source, read without running it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.cli.migrate.values import CannotCarryOver
from fencepost.errors import ConfigurationError

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Called:
    """A call such as `crontab(minute=0)`: its last name, and its arguments where they are plain values."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Reference:
    """A name that the source does not give a plain value: a function, a class, a setting from elsewhere."""

    name: str


def parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(f"the file is not valid Python: {error}; correct it there") from None
    except (RecursionError, MemoryError):
        raise ConfigurationError("the file is nested too deeply; name module:attribute instead") from None


def constants(module: ast.Module) -> dict[str, Any]:
    """The plain values that the module gives to names: `HOUR = 60 * 60`."""
    known: dict[str, Any] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                try:
                    value = literal(statement.value, known)
                except (CannotCarryOver, RecursionError):
                    continue
                if isinstance(value, str | int | float | timedelta | list | tuple | dict):
                    known[target.id] = value
    return known


def literal(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value of an expression that is made of plain values and calls of schedules."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return known.get(node.id, Reference(node.id))
        case ast.Attribute():
            return Reference(ast.unparse(node))
        case ast.List() | ast.Tuple():
            return [literal(item, known) for item in node.elts]
        case ast.Set():
            return {literal(item, known) for item in node.elts}
        case ast.Dict():
            return {
                literal(key, known): literal(value, known)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        case ast.UnaryOp(op=ast.USub()):
            return -_number(literal(node.operand, known), node)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            left, right = literal(node.left, known), literal(node.right, known)
            return ARITHMETIC[type(node.op)](_number(left, node), _number(right, node))
        case ast.Call():
            return _called(node, known)
        case _:
            raise _computed(node)


def _called(node: ast.Call, known: Mapping[str, Any]) -> Any:
    name = ast.unparse(node.func)
    args = tuple(literal(argument, known) for argument in node.args)
    kwargs = {word.arg: literal(word.value, known) for word in node.keywords if word.arg is not None}
    if len(kwargs) < len(node.keywords):
        raise _computed(node)
    last = name.rpartition(".")[2]
    try:
        if last == "timedelta":
            return timedelta(*args, **kwargs)
        if last == "datetime" and "tzinfo" not in kwargs and len(args) < 8:
            return datetime(*args, **kwargs)  # noqa: DTZ001
    except (TypeError, ValueError, OverflowError):
        raise _computed(node) from None
    return Called(name, args, kwargs)


def _number(value: Any, node: ast.AST) -> Any:
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        return value
    raise _computed(node)


def _computed(node: ast.AST) -> CannotCarryOver:
    return CannotCarryOver(
        f"{ast.unparse(node)[:60]!r} is computed, and the file is read without running it",
        "name module:attribute instead of the file, which imports it",
    )
