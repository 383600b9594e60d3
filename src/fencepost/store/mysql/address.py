"""A store URL as what the driver needs, TLS included."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fencepost.errors import ConfigurationError
from fencepost.settings import QUOTE_IT, did_you_mean

PARAMETERS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


def options_of(url: str) -> dict[str, Any]:
    """For `pymysql.connect`. Messages name no value of the URL: it may be a piece of the password."""
    parts, given = urlsplit(url), dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    for name in given.keys() - set(PARAMETERS):
        raise _broken(
            f"has an unknown parameter{did_you_mean(name, PARAMETERS)}; known are {', '.join(PARAMETERS)}"
        )
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise _broken("must name one database, as in mysql://user:password@host:3306/database")
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or "").encode(),
        "database": database,
        **_tls(given),
    }
    return options | ({"unix_socket": given["unix_socket"]} if "unix_socket" in given else {})


def _tls(given: dict[str, str]) -> dict[str, Any]:
    certain = "verify_identity" if "ssl_ca" in given else "required" if "ssl_cert" in given else "preferred"
    mode = given.get("ssl_mode", certain).lower().replace("-", "_")
    if mode not in MODES:
        raise _broken(f"has an unknown ssl_mode; use one of {', '.join(MODES)}")
    if mode in ("disabled", "preferred"):
        return {"ssl_disabled": True} if mode == "disabled" else {}
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca"))
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
        # Servers make certificates for themselves that the strict rules of newer Pythons refuse.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if "ssl_cert" in given:
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    except OSError as error:
        raise _broken(f"names a certificate or key that cannot be read ({error.strerror})") from error
    return {"ssl": context}


def _broken(how: str) -> ConfigurationError:
    return ConfigurationError(f"the store URL (mysql://…) {how}; {QUOTE_IT}")
