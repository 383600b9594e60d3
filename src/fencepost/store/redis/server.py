"""What kind of server this is, and which promise it can keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.errors import ConfigurationError, FencepostError, StoreUnavailable
from fencepost.store.redis.link import Link

OLDEST = (6, 2)


@dataclass(frozen=True, slots=True)
class RedisServerInfo:
    info: Mapping[str, str]
    fsync: str | None
    """`always`, `everysec` or `no`; None: the server does not say."""
    snapshots: str | None
    """When it writes snapshots; empty: never. None: it does not say."""
    fails_over: bool = False
    """Another server may take its place: the URL names Sentinels or a cluster."""

    @classmethod
    async def ask(cls, link: Link) -> RedisServerInfo:
        info = _parsed(await link.ask("INFO", "everything"))
        configured = await _config(link, "appendfsync"), await _config(link, "save")
        return cls(info, *configured, fails_over=link.primary is not None)

    @property
    def run(self) -> str:
        """Of its process, and of its last promotion. A server that was the primary, lost that to another and got it
        back is the same process with less data."""
        run = self.info.get("run_id", "")
        return f"{run}.{self.info.get('master_replid', '')[:12]}" if self._was_promoted else run

    @property
    def _was_promoted(self) -> bool:
        return bool(self.info.get("master_replid2", "").strip("0"))

    @property
    def name(self) -> str:
        for kind in ("valkey", "redis"):
            version = self.info.get(f"{kind}_version")
            if version:
                return f"{kind.capitalize()} {version}"
        return "a server that does not say its version"

    @property
    def keeps_writes(self) -> bool:
        """Whether what it has acknowledged outlives its process, and no follower that lags can take its place."""
        return (
            not self.fails_over
            and self.info.get("aof_enabled") == "1"
            and self.fsync == "always"
            and self.info.get("connected_slaves", "0") == "0"
            and not self._was_promoted
        )

    def refuse_what_cannot_work(self, url: str, *, was_primary: bool = False) -> None:
        """`was_primary`: the same URL has led to a primary before."""
        version = self.info.get("redis_version", "")
        if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise ConfigurationError(f"{url} is Redis {version}; Fencepost needs 6.2 or newer, or Valkey")
        if self.info.get("cluster_enabled") == "1" and not self.fails_over:
            raise ConfigurationError(
                f"{url} is a node of a cluster, where the keys of one step may be on different nodes; "
                "write redis+cluster:// instead of redis://, or rediss+cluster:// instead of rediss://"
            )
        if self.info.get("role") == "slave" and (was_primary or self.fails_over):
            raise StoreUnavailable(
                f"{url} leads to a replica of {self.info.get('master_host')}, which cannot be written to; if there was "
                "a failover it will lead to the primary in a moment"
            )
        if self.info.get("role") == "slave":
            raise ConfigurationError(
                f"{url} is a replica of {self.info.get('master_host')} and cannot be written to; "
                "use the address of the primary, or redis+sentinel:// with those of the Sentinels"
            )
        policy = self.info.get("maxmemory_policy", "noeviction")
        if self.info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
            raise ConfigurationError(
                f"{url} has maxmemory-policy {policy}: it would drop fires and leases when its memory is full; "
                "set it to noeviction, or use a server of its own"
            )

    def promise(self) -> str:
        """One line for the log."""
        return f"{self.name}, {self._persistence()}, {self._eviction()}"

    def _persistence(self) -> str:
        if self.fails_over:
            return f"{self._on_disk()}; a failover can lose the last writes" + _NOTICED
        if self.info.get("aof_enabled") == "1":
            if self.keeps_writes:
                return "appendfsync always: acknowledged writes outlive a crash, each fire is claimed exactly once"
            if self.fsync == "always":
                return "appendfsync always, with replication: a failover can lose the last writes" + _NOTICED
            if self.fsync is None:
                return "append-only file, appendfsync unknown: a crash may lose the last writes" + _NOTICED
            span = "the last second" if self.fsync == "everysec" else "the last seconds"
            return f"appendfsync {self.fsync}: a crash may lose {span}" + _NOTICED
        if "aof_enabled" not in self.info:
            return "persistence unknown: a crash may lose writes" + _NOTICED
        if self.snapshots:
            return "snapshots only: a crash loses everything since the last one" + _NOTICED
        if self.snapshots is None:
            return "no append-only file: a crash loses at least everything since the last snapshot" + _NOTICED
        return "no persistence: a restart loses everything" + _NOTICED

    def _on_disk(self) -> str:
        if self.info.get("aof_enabled") != "1":
            return "no append-only file"
        return f"appendfsync {self.fsync or 'unknown'}"

    def _eviction(self) -> str:
        policy = self.info.get("maxmemory_policy")
        if policy is None:
            return "eviction unknown: the policy must be noeviction"
        if self.info.get("maxmemory", "0") == "0":
            return "no memory limit"
        return f"memory limit {self.info.get('maxmemory_human', '?')}, nothing of ours is evicted ({policy})"


_NOTICED = " (noticed and recorded, jobs are declared again; see docs/stores.md)"


def _parsed(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


async def _config(link: Link, name: str) -> str | None:
    """Managed servers do not let everybody ask."""
    try:
        reply: Any = await link.ask("CONFIG", "GET", name)
    except FencepostError:
        if not link.is_open:
            raise
        return None
    return reply[1] if reply else None
