"""Kubernetes: an order is a Job of the order's name. The name is what makes it one: a second create is refused (409).

A Job may start two pods all the same (after the loss of a node, or a restart of the Job controller): the start gate
refuses the second. `manifest.py` makes the Job, `watch.py` hears of its fate, `sightings.py` says what that means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from fencepost.engines.kubernetes.access import found_access
from fencepost.engines.kubernetes.api import Api, ApiError, Object
from fencepost.engines.kubernetes.manifest import (
    FINGERPRINT,
    SELECTOR,
    checked_options,
    fingerprint,
    job_for,
)
from fencepost.engines.kubernetes.sightings import sighting_of
from fencepost.engines.kubernetes.watch import JobWatch
from fencepost.errors import ConfigurationError
from fencepost.runs.engines import GONE, UNSURE, Order, Ref, Sighting, ended

SHOWN_FOR = 600
"""Seconds for which a Job whose outcome is on record is kept for `kubectl logs`."""
AT_ONCE = 8
"""Requests."""
FINAL = (400, 403, 404, 413, 422)
"""Answers that a second try does not change: an invalid template, no such namespace, no right to create Jobs."""

log = logging.getLogger("fencepost")


class KubernetesEngine:
    """Jobs in one namespace of one cluster. For another one, register a second engine under a name of its own."""

    def __init__(self, kubeconfig: str | None = None, namespace: str | None = None) -> None:
        self._api = Api(found_access(kubeconfig, namespace))
        self._watched = JobWatch(self._api, SELECTOR)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._refused: dict[Ref, Sighting] = {}

    check_options = staticmethod(checked_options)

    async def submit(self, order: Order) -> None:
        """What the server will never take ends the order: sending it again would be no use."""
        self._watched.start()
        try:
            await self._create(order)
        except (ConfigurationError, ApiError) as error:
            if isinstance(error, ApiError) and error.status not in FINAL:
                raise
            log.error("kubernetes: %s cannot be run: %s", order.key, error)
            self._refused[order.ref] = ended(False, str(error))

    async def _create(self, order: Order) -> None:
        job = job_for(order, self._api.namespace)
        async with self._room:
            try:
                await self._api.create(job)
            except ApiError as error:
                if error.status != 409:
                    raise
                _check_ours(await self._api.job(order.ref), order)

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        self._watched.start()
        found = await asyncio.gather(*map(self._poll, refs), return_exceptions=True)
        return {
            ref: UNSURE if isinstance(each, BaseException) else each
            for ref, each in zip(refs, found, strict=True)
        }

    async def _poll(self, ref: Ref) -> Sighting:
        if ref in self._refused:
            return self._refused[ref]
        async with self._room:
            job = self._watched.jobs.get(ref) or await self._asked_for(ref)
            return GONE if job is None else await sighting_of(job, self._api)

    async def _asked_for(self, ref: Ref) -> Object | None:
        try:
            return await self._api.job(ref)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def stop(self, ref: Ref) -> None:
        if ref not in self._refused:
            await self._api.delete(ref)

    async def forget(self, ref: Ref) -> None:
        if self._refused.pop(ref, None) is None:
            await self._api.keep_for(ref, SHOWN_FOR)

    async def close(self) -> None:
        await self._watched.stop()
        await self._api.close()
        self._room = asyncio.Semaphore(AT_ONCE)


def _check_ours(job: Object, order: Order) -> None:
    found = (job["metadata"].get("annotations") or {}).get(FINGERPRINT)
    if found != fingerprint(order):
        raise ConfigurationError(
            f"{order.key}: there is a Job {order.ref} already, which is not of this fire (fingerprint {found}); "
            f"delete it, or give this scheduler another namespace"
        )
