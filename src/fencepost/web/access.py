"""Who may do what: roles, callers, and the file of tokens that names them.

    read       sees jobs and fires
    operate    also triggers, retries, cancels, pauses and resumes
    admin      also defines and removes jobs

A token is random and long, so one round of SHA-256 is enough to keep it secret from readers of the file
(`docs/decisions/0034-tokens-and-roles.md`). Nothing here needs a web framework: `fencepost token` writes such a file.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, get_args

from fencepost.errors import ConfigurationError
from fencepost.insight.visible import Sees, Sight
from fencepost.settings import did_you_mean

Role = Literal["read", "operate", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each role includes those before it."""

PREFIX: Final = "fencepost_"
"""Of new tokens, so that a search for leaked secrets finds them."""
HASH_KIND: Final = "sha256:"
NAME: Final = re.compile(r"[A-Za-z0-9_.@:+-]{1,100}")
PATTERN: Final = re.compile(r"[A-Za-z0-9_.:*?-]{1,200}")
LARGEST_FILE: Final = 1_000_000
MOST_PATTERNS: Final = 100


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: known by a token, from the host application, or because it came from this machine."""

    role: Role
    name: str = "api"
    """For the ledger and the log: who triggered, paused or cancelled."""
    jobs: tuple[str, ...] = ()
    """Patterns of the job ids that it sees and acts on, such as `billing.*`; empty: every job."""

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, job_id: str) -> bool:
        return not self.jobs or any(fnmatchcase(job_id, pattern) for pattern in self.jobs)

    @property
    def sees_only(self) -> Sees | None:
        """None: every job."""
        return self.sees if self.jobs else None

    @property
    def sight(self) -> Sight:
        return Sight(self.sees_only)


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def entry_of(caller: Caller, token: str) -> str:
    """The lines that stand for this token in the file."""
    jobs = ", ".join(f'"{pattern}"' for pattern in caller.jobs)
    name = caller.name if re.fullmatch(r"[A-Za-z0-9_-]+", caller.name) else f'"{caller.name}"'
    lines = [
        f"[{name}]",
        f'role = "{caller.role}"',
        *([f"jobs = [{jobs}]"] if jobs else []),
        f'hash = "{HASH_KIND}{digest_of(token).hex()}"',
    ]
    return "\n".join(lines) + "\n"


def checked_caller(name: str, role: Any, jobs: Any = ()) -> Caller:
    """Raises `ConfigurationError` with the remedy."""
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name[:100]!r} cannot name a token: use 1 to 100 letters, digits or _ . @ : + -"
        )
    if not isinstance(role, str) or role not in ROLES:
        hint = did_you_mean(role, ROLES) if isinstance(role, str) else ""
        raise ConfigurationError(f"{name}: role must be one of {', '.join(ROLES)}{hint}")
    if not isinstance(jobs, list | tuple) or len(jobs) > MOST_PATTERNS:
        raise ConfigurationError(
            f'{name}: jobs must be a list of at most {MOST_PATTERNS}: jobs = ["billing.*"]'
        )
    for pattern in jobs:
        if not isinstance(pattern, str) or not PATTERN.fullmatch(pattern):
            raise ConfigurationError(
                f"{name}: {str(pattern)[:100]!r} matches no job id: use letters, digits, _ . : -, * for any text and ? "
                "for any one letter"
            )
    return Caller(role, name, tuple(jobs))


def read_tokens(path: str) -> dict[bytes, Caller]:
    """Who has which token, by its digest. Raises `ConfigurationError`; no message holds a hash."""
    try:
        table = tomllib.loads(_text_of(Path(path)))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None
    found: dict[bytes, Caller] = {}
    for name, entry in table.items():
        try:
            digest, caller = _entry(name, entry)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        if digest in found:
            raise ConfigurationError(f"{path}: {found[digest].name} and {name} have the same token")
        found[digest] = caller
    return found


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_mode & stat.S_IWOTH:
            raise ConfigurationError(f"everybody can write {path}, and so become admin: chmod o-w it")
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise ConfigurationError(f"{path} is larger than {LARGEST_FILE} bytes")
    return text.decode()


def _entry(name: str, entry: Any) -> tuple[bytes, Caller]:
    if not isinstance(entry, Mapping):
        raise ConfigurationError(
            f"{name[:100]} is not a table: write [{name[:100]}], and below it role and hash"
        )
    for key in entry:
        if key not in ("role", "hash", "jobs"):
            hint = did_you_mean(key, ("role", "hash", "jobs"))
            raise ConfigurationError(f"{name[:100]}: there is no {key[:100]!r}{hint}")
    caller = checked_caller(name, entry.get("role"), entry.get("jobs", ()))
    if "jobs" in entry and not caller.jobs:
        raise ConfigurationError(f"{name}: jobs = [] would see nothing; leave jobs out to see every job")
    text = entry.get("hash")
    if not isinstance(text, str) or not re.fullmatch(rf"{HASH_KIND}[0-9a-f]{{64}}", text):
        raise ConfigurationError(
            f"{name}: hash must be {HASH_KIND} and 64 hexadecimal digits; `fencepost token {name}` makes one"
        )
    return bytes.fromhex(text.removeprefix(HASH_KIND)), caller
