"""The Redis and Valkey store: many machines, one server.

`lua/` has the steps that are whole on the server, `rows.py` the shared operations over its rows. What is where
is said in `keys.py`; why it is done this way in docs/decisions/0017-redis-rows.md.
"""

from fencepost.errors import missing_extra

try:
    import redis as _client  # noqa: F401
except ImportError as error:
    raise missing_extra("a Redis or Valkey store", error, "redis") from error

from fencepost.store.redis.store import RedisStore

__all__ = ["RedisStore"]
