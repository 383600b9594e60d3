"""A command as the body of a job: `scheduler.command(["pg_dump", …], every(hours=1), id="backup")`."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import Json, Origin
from fencepost.model.triggers import iso
from fencepost.model.values import clean_text
from fencepost.runs.fire import Fire
from fencepost.runs.masking import mask_for, masked_words

SHELL = ("/bin/sh", "-c")
SHOWN = 500
"""Characters of a command that the store keeps."""
NOT_INHERITED = frozenset(
    {
        "FENCEPOST_AUTH_TOKEN",
        "FENCEPOST_AUTH_TOKEN_FILE",
        "FENCEPOST_READ_TOKEN",
        "FENCEPOST_READ_TOKEN_FILE",
        "FENCEPOST_TOKENS_FILE",
    }
)


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    file: str = ""
    """The job file that declares it."""

    @classmethod
    def of(
        cls,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, Any] | None = None,
        cwd: str | None = None,
        file: str = "",
    ) -> Command:
        if isinstance(command, str):
            if not shell:
                raise ConfigurationError(
                    f"command {command!r}: give a list of words, or shell=True to have /bin/sh take it apart"
                )
            argv: tuple[str, ...] = (*SHELL, command)
        elif shell:
            raise ConfigurationError(f"command {list(command)!r}: shell=True takes one text, not a list")
        else:
            argv = tuple(command)
        if not argv or not argv[0] or not all(map(_is_word, argv)):
            raise ConfigurationError(f"command {command!r}: give at least one word, and only text")
        extra = dict(env or {})
        if not all(map(_is_word, [*extra, *extra.values()])):
            raise ConfigurationError(f"command {argv[0]!r}: env must hold names and texts")
        return cls(argv, extra, cwd, file)

    @property
    def origin(self) -> Origin:
        """A job without code is known by what it runs, wherever its file is. Secrets are no part of that: what is kept
        in the store is masked first."""
        mask = mask_for({**os.environ, **self.env})
        shown = mask(self.argv[2] if self.argv[:2] == SHELL else shlex.join(masked_words(self.argv)))
        folder = os.path.dirname(self.file)
        cwd = os.path.relpath(self.cwd or ".", folder) if folder else self.cwd
        env = {name: mask(f"{name}={value}") for name, value in self.env.items()}
        known_by = json.dumps([shown, self.argv[:2] == SHELL, cwd, env], sort_keys=True)
        fingerprint = hashlib.sha256(known_by.encode()).hexdigest()[:16]
        return Origin(f"command:{fingerprint}", file=self.file, command=clean_text(shown, SHOWN))

    def environment(self, fire: Fire) -> dict[str, str]:
        """What the command finds: which fire it is, with which token and arguments. The service's own tokens stay
        behind: a command that needs one gets it by `env`."""
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        return {
            **inherited,
            **self.env,
            **({"TRACEPARENT": fire.traceparent} if fire.traceparent else {}),
            "FIRE_KEY": fire.key,
            "FIRE_EFFECT_KEY": fire.effect_key,
            "FIRE_JOB": fire.job_id,
            "FIRE_DUE_AT": iso(fire.due_at),
            "FIRE_TOKEN": str(fire.token),
            "FIRE_ATTEMPT": str(fire.attempt),
            "FIRE_ARGS": json.dumps(dict(fire.args)),
        }

    def __call__(self, fire: Fire, **args: Json) -> None:
        """Run it here and now; raises if it fails. (A replica runs it through a keeper: see `CommandBody`.)"""
        from fencepost.runs.bodies.process import CommandBody

        CommandBody(self, fire).run(lambda: None)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value
