"""The signature of a webhook: who sent it, unchanged, and when.

Fencepost-Signature: t=1794911400,v1=<hex hmac-sha256 of "1794911400." + body>
"""

from __future__ import annotations

import hashlib
import hmac
import re

from fencepost.clock import Clock, SystemClock
from fencepost.errors import ConfigurationError
from fencepost.notify.sending import is_text
from fencepost.settings import duration

HEADER = "Fencepost-Signature"
ID_HEADER = "Fencepost-Id"
MOST_SIGNATURES = 5
"""In one header: a sender that changes its secret may sign with both for a while."""


def signature(body: bytes, secret: str, clock: Clock) -> str:
    second = str(int(clock.wall().timestamp()))
    return f"t={second},v1={_digest(second, body, secret)}"


def verify(
    body: bytes, header: str | None, secret: str, tolerance: object = "5m", *, clock: Clock | None = None
) -> bool:
    """For receivers: was this body signed with this secret, at most `tolerance` ago or ahead?

    Hand in the bytes as they were received: JSON that was parsed and written again has other ones. A replay within the
    tolerance has the same `Fencepost-Id`, as a repeated delivery has: count by it.
    """
    if not isinstance(body, bytes | bytearray):
        raise TypeError("verify needs the body as bytes, exactly as it was received")
    checked_secret(secret)
    found = re.fullmatch(r"t=([0-9]{1,12})((?:,v1=[0-9a-f]{64})+)", header or "")
    if found is None:
        return False
    age = (clock or SystemClock()).wall().timestamp() - int(found[1])
    if abs(age) > duration(tolerance).total_seconds():
        return False
    expected = _digest(found[1], bytes(body), secret)
    given = found[2].split(",v1=")[1 : MOST_SIGNATURES + 1]
    return any([hmac.compare_digest(expected, each) for each in given])


def checked_secret(secret: object) -> str:
    if not is_text(secret, r".+"):
        raise ConfigurationError("secret must be a text that is not empty; 32 random characters are good")
    return secret


def _digest(second: str, body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), f"{second}.".encode() + body, hashlib.sha256).hexdigest()
