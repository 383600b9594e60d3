"""An ASGI server's workers that take part. In the project's `asgi.py`:

    from fencepost.django.asgi import get_asgi_application

Django's own application knows no lifespan, so a server could not tell it when to begin and to end. This one does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application as djangos_application

from fencepost.django.project import is_testing, project_scheduler
from fencepost.django.taking_part import DjangoStarter

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def get_asgi_application() -> Application:
    """Django's application. The process that serves it runs jobs: coroutines on the server's event loop, functions in
    threads. A server that sends no lifespan, such as daphne, takes part from the first request on."""
    return Application(djangos_application())


class Application:
    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._application = application
        self._has_lifespan = False
        self._starter = DjangoStarter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if not self._has_lifespan:
            await sync_to_async(self._starter.now, thread_sensitive=False)()
        await self._application(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        self._has_lifespan = True
        await receive()
        taking_part = not is_testing()
        if taking_part:
            try:
                await project_scheduler().start()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": f"fencepost: {error}"})
                return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if taking_part:
            await project_scheduler().stop()
        await send({"type": "lifespan.shutdown.complete"})
