"""The service as an application of a web server: what it can do, and where it comes from. The rooms of the web register
themselves; nothing here imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from fencepost.errors import missing_extra
from fencepost.model import integrations


class AsgiService(Protocol):
    """What `Scheduler.asgi` returns: an ASGI application."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def lifespan(self, app: object) -> AbstractAsyncContextManager[None]:
        """For the application it is mounted in."""

    def reload(self) -> None:
        """Read the file of tokens again."""


class WsgiService(Protocol):
    """What `Scheduler.wsgi` returns: a WSGI application."""

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]: ...

    def answer(self, environ: Any) -> Any:
        """`status`, `headers` and `body`, for frameworks with responses of their own."""

    def reload(self) -> None:
        """Read the file of tokens again."""


def application(kind: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = integrations.load("fencepost.applications", kind)
    except ModuleNotFoundError as error:
        raise missing_extra("the service", error, "web") from None
    return found
