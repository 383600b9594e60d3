"""What a fire runs: the function, inside of an application context of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flask import Flask


def in_context(app: Flask, function: Any) -> Any:
    """A pipeline, and whatever else is no function, runs as it is."""
    if inspect.iscoroutinefunction(function):
        body = _coroutine(app, function)
    elif inspect.isfunction(function):
        body = _function(app, function)
    else:
        return function
    marks: Any = body
    marks.stands_for = function
    return body


def _function(app: Flask, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        with app.app_context():
            return function(**arguments)

    return run


def _coroutine(app: Flask, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run(**arguments: Any) -> Any:
        with app.app_context():
            return await function(**arguments)

    return run
