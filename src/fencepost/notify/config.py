"""Channels as tables of `fencepost.toml`, and channels of other packages.

    [[notify]]
    channel = "webhook"
    url = "https://ops.example.com/hook"
    secret = "${HOOK_SECRET}"

A package registers its own kind as Fencepost does, by an entry point of the group `fencepost.channels`: a function that
takes the table's other values by name and returns a `Channel`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import integrations
from fencepost.notify.channel import Channel
from fencepost.notify.sending import checked_name
from fencepost.settings import did_you_mean

GROUP = "fencepost.channels"
OF_THE_RULE = frozenset({"on", "jobs", "quiet", "digest"})
"""Keys of the same table that say when, not how."""
SECRET = frozenset({"secret", "password", "dsn"})
"""Must not stand in the file: it is shared, copied and kept in version control."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def channel_from(table: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Channel:
    kind = table.get("channel")
    kinds = integrations.registered(GROUP)
    if not isinstance(kind, str):
        raise ConfigurationError(
            f'lacks a channel, as channel = "webhook"; there are {", ".join(sorted(kinds))}'
        )
    if kind not in kinds:
        raise ConfigurationError(f"there is no channel {kind!r}{did_you_mean(kind, kinds)}")
    given = {key: value for key, value in table.items() if key != "channel" and key not in OF_THE_RULE}
    factory = _loaded(kind)
    _check_keys(kind, factory, given)
    variables = os.environ if env is None else env
    values = {key: _filled(key, value, variables) for key, value in given.items()}
    try:
        channel: Channel = factory(**values)
    except TypeError as error:  # of a value of the wrong kind, which the text may show
        raise ConfigurationError(
            f"channel {kind!r}: a value is of the wrong type ({type(error).__name__})"
        ) from None
    checked_name(channel.name)
    return channel


def _loaded(kind: str) -> Callable[..., Any]:
    try:
        factory = integrations.load(GROUP, kind)
    except ImportError as error:
        raise ConfigurationError(f"channel {kind!r} needs what is not installed: {error}") from None
    if not callable(factory):
        raise ConfigurationError(f"the entry point {kind!r} of {GROUP!r} is no function")
    return factory  # type: ignore[no-any-return]


def _check_keys(kind: str, factory: Callable[..., Any], given: Mapping[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    names = [each.name for each in parameters]
    for key in given:
        if key not in names:
            raise ConfigurationError(f"channel {kind!r} has no {key!r}{did_you_mean(key, names)}")
    for each in parameters:
        if each.default is each.empty and each.name not in given:
            raise ConfigurationError(f"channel {kind!r} needs {each.name}")


def _filled(key: str, value: Any, variables: Mapping[str, str]) -> Any:
    """`${NAME}` in texts, also in lists of them."""
    if isinstance(value, list):
        return [_filled(key, each, variables) for each in value]
    if not isinstance(value, str):
        return value
    if key in SECRET and not _VARIABLE.search(value):
        raise ConfigurationError(
            f'{key} stands in the file; write {key} = "${{NAME}}" and set the environment variable NAME'
        )

    def of(found: re.Match[str]) -> str:
        if not variables.get(found[1]):
            raise ConfigurationError(
                f"{key} needs the environment variable {found[1]}, which is not set or empty"
            )
        return variables[found[1]]

    return _VARIABLE.sub(of, value)
