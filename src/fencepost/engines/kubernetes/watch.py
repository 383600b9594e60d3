"""The Jobs of a namespace as last seen: listed once, then watched; listed again when a watch cannot be resumed."""

from __future__ import annotations

import asyncio
import logging

from fencepost.engines.kubernetes.api import Api, ApiError, Object

log = logging.getLogger("fencepost")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before another try, doubling."""


class JobWatch:
    """`jobs` may be behind, but what it says was true. That something is not in it proves nothing."""

    def __init__(self, api: Api, selector: str) -> None:
        self.jobs: dict[str, Object] = {}
        self.lists = 0
        """How often all were listed."""
        self._api = api
        self._selector = selector
        self._version: str | None = None
        self._heard = 0
        """Answers and events so far."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_on(), name="fencepost-kubernetes")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _keep_on(self) -> None:
        pause = FIRST_PAUSE
        while True:
            begun = self._heard
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
                pause = FIRST_PAUSE
            except Exception as error:
                if self._heard > begun:
                    pause = FIRST_PAUSE
                if _expired(error):
                    self._version = None  # the server has forgotten what happened since: list
                else:
                    log.warning(
                        "kubernetes: the watch of Jobs has broken off, again in %.1f s: %r", pause, error
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _list(self) -> None:
        found, self._version = await self._api.jobs(self._selector)
        self.jobs = {job["metadata"]["name"]: job for job in found}
        self.lists += 1
        self._heard += 1

    async def _watch(self) -> None:
        """Until the server ends it, as it does now and then; the next one goes on from the last version seen."""
        assert self._version is not None
        async for event in self._api.watch(self._selector, self._version):
            seen = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(seen.get("code", 500), seen.get("message", "the watch failed"))
            self._heard += 1
            self._version = str(seen["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self.jobs.pop(seen["metadata"]["name"], None)
            elif event["type"] != "BOOKMARK":
                self.jobs[seen["metadata"]["name"]] = seen


def _expired(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 410
