"""Two schedulers in one application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from fencepost import Scheduler

first, second = Scheduler(namespace="first"), Scheduler(namespace="second")


@asynccontextmanager
async def lifespan(app: object) -> AsyncIterator[None]:
    async with first, second:
        yield


app = Starlette(
    routes=[Mount("/first", first.asgi()), Mount("/second", second.asgi())],
    lifespan=lifespan,
)
