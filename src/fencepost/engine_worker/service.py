"""The way to the store through `fencepost serve`, for workers that cannot reach the store."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from fencepost.errors import ConfigurationError, NotStorable, StoreUnavailable
from fencepost.model import Json, changed
from fencepost.runs.engines import Order
from fencepost.runs.fenced import Scope
from fencepost.store.base import Claim, Start, Update
from fencepost.store.codec import from_json, to_json

PATIENCE = 10.0
"""Seconds for one request."""
ANSWER_LIMIT = 1_048_576


class ServiceGate:
    def __init__(self, url: str, token: str | None, order: Order) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(
                "FENCEPOST_SERVICE must be the http:// or https:// URL of `fencepost serve`"
            )
        self._url = f"{url.rstrip('/')}/api/v1/fires/{urllib.parse.quote(order.key, safe='')}"
        self._token = token
        self._order = order
        self._claim: Claim | None = None
        self._kept: Json = None
        self._cancelled = False

    @property
    def scope(self) -> Scope:
        return Scope(self._order.namespace, None)

    async def send(self, worker: str, updates: Sequence[Update]) -> Sequence[bool]:
        return [await self._sent(worker, update) for update in updates]

    async def _sent(self, worker: str, update: Update) -> bool:
        if isinstance(update, Start):
            asked = {"heartbeat": update.heartbeat, "ttl": update.ttl}
            answer = await self._post("start", worker, asked)
            if answer is None:
                return False
            self._claim, self._kept = from_json(Claim, answer["claim"]), answer["kept"]
            return True
        given = {name: value for name, value in to_json(update).items() if name not in ("key", "token")}
        answer = await self._post("update", worker, {"update": given})
        if answer is None:
            return False
        self._cancelled = bool(answer["cancel_requested"])
        return bool(answer["accepted"])

    async def claim(self, order: Order) -> Claim | None:
        """As the last answer had it."""
        if self._claim is None or not self._cancelled:
            return self._claim
        return Claim(changed(self._claim.fire, cancel_requested=True), self._claim.job)

    async def kept(self, job_id: str) -> Json:
        return self._kept

    async def close(self) -> None:
        return

    async def _post(self, what: str, worker: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """None: refused."""
        text = json.dumps({"token": self._order.token, "worker": worker, **body}).encode()
        return await asyncio.to_thread(self._request, f"{self._url}/{what}", text)

    def _request(self, url: str, text: bytes) -> dict[str, Any] | None:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(url, data=text, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                answer: dict[str, Any] = json.loads(reply.read(ANSWER_LIMIT))
        except urllib.error.HTTPError as error:
            self._refused(error)
            return None
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"the service does not answer ({error})") from None
        return answer

    def _refused(self, error: urllib.error.HTTPError) -> None:
        if error.code in (404, 409):
            return
        if error.code in (401, 403):
            raise ConfigurationError(
                f"the service refuses this worker ({error.code}): set FENCEPOST_AUTH_TOKEN to a token that may operate"
            )
        if error.code == 422:
            raise NotStorable(f"the service cannot take this update ({error.code})")
        raise StoreUnavailable(f"the service answers {error.code}")
