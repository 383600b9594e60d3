"""What a run is handed beside its arguments: context managers, entered for it and left after it.

    scheduler = Scheduler(resources={"db": open_session})

    @scheduler.job(every(minutes=5))
    async def poll(db): ...

They are entered before the trust window is checked for the last time: opening one may take long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from fencepost.errors import ConfigurationError

Resource = Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]


def checked_resources(given: Mapping[str, Resource]) -> dict[str, Resource]:
    for name, resource in given.items():
        if not str(name).isidentifier() or name == "fire":
            raise ConfigurationError(f"resource {name!r} must be named like a parameter, and not 'fire'")
        if not callable(resource):
            raise ConfigurationError(f"resource {name!r} must be a function that returns a context manager")
    return dict(given)


@asynccontextmanager
async def opened(resources: Mapping[str, Resource]) -> AsyncIterator[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        values = {}
        for name, resource in resources.items():
            manager = resource()
            if isinstance(manager, AbstractAsyncContextManager):
                values[name] = await stack.enter_async_context(manager)
            else:
                values[name] = stack.enter_context(_plain(manager, name))
        yield values


@contextmanager
def opened_blocking(resources: Mapping[str, Resource]) -> Iterator[dict[str, Any]]:
    """For a function in a thread. An async one would live on another thread's loop: of no use there."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_plain(resource(), name)) for name, resource in resources.items()}


def _plain(manager: object, name: str) -> AbstractContextManager[Any]:
    if isinstance(manager, AbstractContextManager):
        return manager
    if isinstance(manager, AbstractAsyncContextManager):
        raise ConfigurationError(f"resource {name!r} is async: make the function that wants it `async def`")
    raise ConfigurationError(f"resource {name!r} returned {type(manager).__name__}, not a context manager")
