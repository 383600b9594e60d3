"""The schema of a namespace, and statements with its name in them."""

from __future__ import annotations

import zlib

from fencepost.errors import ConfigurationError
from fencepost.store.rules.leadership import OBSERVED

LONGEST = 50
"""Letters of a namespace: with ours before them a name must have no more than 63."""

SPACE = 0x66706F73
"""`fpos`: the half of our advisory locks' keys that sets them apart from those of the application. The other half is
made from the namespace. Two that agree in both would wait for each other now and then, and nothing worse."""

ACTIONS = SPACE + 1
"""The same half for the locks of single actions. The other half is a hash of namespace and job: two that agree come
again now and then, and nothing worse."""

IDLE_TIMEOUT_MS = 3000
"""How long a step of the general path may say nothing while all others wait for it."""
LOCK_TIMEOUT_MS = 4000
STATEMENT_TIMEOUT_MS = 5000


DEFAULT_SCHEMA = "fencepost"
"""Of the namespace `default`; `fencepost_<namespace>` of any other."""


class PostgresNames:
    def __init__(self, namespace: str) -> None:
        if len(namespace) > LONGEST:
            raise ConfigurationError(
                f"namespace {namespace[:20]!r}… is too long for PostgreSQL; use at most {LONGEST} characters"
            )
        self.namespace = namespace
        self.schema = DEFAULT_SCHEMA if namespace == "default" else f"{DEFAULT_SCHEMA}_{namespace}"
        self.channel = self.schema
        self.lead_channel = f"{self.schema}!"
        """For signs of the leader. No namespace has this character."""
        self._words = {
            "{schema}": f'"{self.schema}"',
            "{channel}": self.channel,
            "{lead_channel}": self.lead_channel,
            "{lock}": f"{SPACE}, {zlib.crc32(self.schema.encode()) - 2**31}",
            "{actions}": str(ACTIONS),
            "{observed}": str(OBSERVED),
            "{lock_timeout}": str(LOCK_TIMEOUT_MS),
            "{idle_timeout}": str(IDLE_TIMEOUT_MS),
            "{statement_timeout}": str(STATEMENT_TIMEOUT_MS),
        }
        self._statements: dict[str, bytes] = {}

    def sql(self, statement: str) -> bytes:
        if statement not in self._statements:
            text = statement
            for word, value in self._words.items():
                text = text.replace(word, value)
            self._statements[statement] = text.encode()
        return self._statements[statement]
