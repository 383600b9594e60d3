"""Store URLs: which there are, what is wrong with one, and one without its secrets.

A password that is not percent-encoded takes a URL apart in the wrong place: a piece of it becomes the host, the port
or the database, and drivers print those. So a broken URL is refused here, and the message shows its scheme alone.
"""

from __future__ import annotations

import re
from typing import Final

from fencepost.errors import ConfigurationError

SCHEMES: Final = (
    "memory",
    "file",
    "sqlite",
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "redis+sentinel",
    "redis+cluster",
    "postgresql",
    "postgres",
    "mysql",
    "mariadb",
)
REDIS_SCHEMES: Final = tuple(
    f"{base}{kind}"
    for base in ("redis", "rediss", "valkey", "valkeys")
    for kind in ("", "+sentinel", "+cluster")
)
ON_A_SERVER: Final = (*SCHEMES[3:], *REDIS_SCHEMES)
QUOTE_IT = (
    "if user name or password hold any of @ / ? # % [ ] : or a space, write it percent-encoded (%40 for @)"
)

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_USER: Final = r"(?:[^@\s\[\]%]|%[0-9A-Fa-f]{2})*"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+(?:%25)?\w*\]|(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?"
_AUTHORITY: Final = re.compile(rf"(?:{_USER}@)?{_HOST}(?:,{_HOST})*")
_REDIS_AUTHORITY: Final = re.compile(rf"(?:[^\s\[\]]*@)?{_HOST}")
"""Its client takes all up to the last @ as user and password, as they are."""
_REDIS_AUTHORITIES: Final = re.compile(rf"{_REDIS_AUTHORITY.pattern}(?:,{_HOST})*")
_QUERY: Final = re.compile(r"\?(?:\w+=[^&]*(?:&\w+=[^&]*)*)?")


def scheme_of(url: str) -> str:
    """Before `://`; empty where there is none."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]{0,20})://", url)
    if found is None and url.startswith("file:"):
        return "file"  # `file:jobs`: a folder from here
    return found[1].lower() if found else ""


def checked_store_url(url: str) -> str:
    """The URL as it is; raises `ConfigurationError` if it can only be misunderstood."""
    scheme = scheme_of(url)
    if not scheme:
        raise ConfigurationError(f"this is no store URL; use one such as sqlite:///app.db or {_LIST}")
    if any(letter < " " for letter in url):
        raise _broken(scheme, "has a control character in it")
    found = _URL.fullmatch(url)
    if found is None:
        return url  # `file:jobs`
    if scheme not in ON_A_SERVER:
        if set("[]") & set(found[2]):
            raise _broken(scheme, "has a bracket where a host would be")
        return url
    _, authority, path, query, fragment = (part or "" for part in found.groups())
    pattern = _AUTHORITY
    if scheme in REDIS_SCHEMES:
        pattern = _REDIS_AUTHORITIES if "+" in scheme else _REDIS_AUTHORITY
    if not pattern.fullmatch(authority):
        raise _broken(scheme, "names no host and port that can be read")
    if "@" not in authority and ":" in authority and "@" in path + query + fragment:
        raise _broken(scheme, "has an @ behind the host")
    if fragment:
        raise _broken(scheme, "has a # in it")
    if query and not _QUERY.fullmatch(query):
        raise _broken(scheme, "has parameters that are not name=value")
    return url


def _broken(scheme: str, how: str) -> ConfigurationError:
    return ConfigurationError(f"the store URL ({scheme}://…) {how}; {QUOTE_IT}")


_LIST: Final = ", ".join(f"{scheme}://" for scheme in SCHEMES)


def redacted(url: str) -> str:
    """The URL without its passwords, for messages. In doubt it hides too much rather than too little."""
    return _USER_INFO.sub(r"\1:***@", _SECRET_PARAMETER.sub(r"\1***", url))


# Both run to the last place where a secret could end: a raw "@", "/" or "?" in it must not expose the rest.
_USER_INFO: Final = re.compile(r"^([\w+.-]+://[^:]*|[^:/]*(?!://)):.*@", re.DOTALL)
_SECRET_PARAMETER: Final = re.compile(r"(\w*(?:password|passwd|pwd|secret|token)\w*\s*=)[^&]*", re.IGNORECASE)
