"""The last reading of each device, in the same Valkey. Whoever polls writes it; every replica shows it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import redis.asyncio as client
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

KEY = "poller:readings"
PATIENCE = 1.0
FOLLOW_SECONDS = 1.0
WRITE = """
-- A replica that was stopped in the middle of a poll, and taken for dead, may wake up and write what it read an hour
-- ago. Its token is lower than that of whoever polled since. Tokens are compared as texts of one length: they may be
-- larger than the numbers that Lua knows exactly.
local token = redis.call('HGET', KEYS[1] .. ':tokens', ARGV[1])
if token and token > ARGV[2] then return 0 end
redis.call('HSET', KEYS[1] .. ':tokens', ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


def redis_url(url: str) -> str:
    """As the client knows it."""
    return url.replace("valkey", "redis", 1) if url.startswith("valkey") else url


def writing(device: int, reading: dict[str, Any], token: int) -> tuple[Any, ...]:
    """The arguments of EVAL."""
    return WRITE, 1, KEY, device, f"{token:020d}", json.dumps(reading)


class Readings:
    def __init__(self, url: str) -> None:
        self._client: Any = client.Redis.from_url(
            redis_url(url),
            decode_responses=True,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            retry=Retry(NoBackoff(), 0),
        )
        self._last: dict[str, Any] = {}

    async def write(self, device: int, reading: dict[str, Any], token: int) -> bool:
        """False: somebody with a higher token has written since."""
        return bool(await self._client.eval(*writing(device, reading, token)))

    async def follow(self) -> None:
        """Look again and again: a replica that was never asked, when Valkey goes away, has the last readings, too."""
        while True:
            await self.all()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def all(self) -> dict[str, Any]:
        """While Valkey does not answer: what it said last, marked as stale."""
        try:
            found = await self._client.hgetall(KEY)
        except (RedisError, OSError):
            return {"stale": True, "readings": self._last}
        self._last = {device: json.loads(text) for device, text in found.items()}
        return {"stale": False, "readings": self._last}

    async def close(self) -> None:
        await self._client.aclose()
