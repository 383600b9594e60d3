"""`webhook(url, secret=…)`: each notice is a POST of JSON, signed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fencepost.clock import Clock, SystemClock
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.model.triggers import iso
from fencepost.model.values import Json, json_text
from fencepost.notify.http import TIMEOUT, Target, post
from fencepost.notify.sending import checked_name, checked_seconds
from fencepost.notify.signing import HEADER, ID_HEADER, checked_secret, signature

MOST_IN_ONE = 100
"""Notices in one POST. Each has a few hundred bytes."""
LONGEST_ERROR = 2_000


def webhook(
    url: str, *, secret: str | None = None, name: str = "webhook", timeout: object = TIMEOUT
) -> Webhook:
    """POST each notice as JSON. With a `secret` the receiver can check who sent it, by `fencepost.notify.verify`."""
    if secret is not None:
        checked_secret(secret)
    return Webhook(checked_name(name), Target.of(url, "url"), secret, checked_seconds(timeout))


@dataclass(frozen=True)
class Webhook:
    name: str
    target: Target
    secret: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    causes: Causes = ALERTS

    async def deliver(self, notices: Sequence[Notice]) -> None:
        for some in _parts(notices):
            body = json_text(_document(some)).encode()
            headers = {"Content-Type": "application/json", ID_HEADER: digest_id(some)}
            if self.secret is not None:
                headers[HEADER] = signature(body, self.secret, self.clock)
            await post(self.target, body, headers, self.timeout, (self.secret or "",))


def digest_id(notices: Sequence[Notice]) -> str:
    """Of one notice its own, of several one that is the same when they are sent again."""
    if len(notices) == 1:
        return notices[0].id
    return hashlib.sha256("\n".join(each.id for each in notices).encode()).hexdigest()[:32]


def _parts(notices: Sequence[Notice]) -> Iterator[Sequence[Notice]]:
    return (notices[start : start + MOST_IN_ONE] for start in range(0, len(notices), MOST_IN_ONE))


def _document(notices: Sequence[Notice]) -> Json:
    if len(notices) == 1:
        return _shape(notices[0])
    last = max(each.at for each in notices)
    names = dict.fromkeys(("job_id", "fire", "state", "reason", "error"))
    head = {"id": digest_id(notices), "cause": "digest", **names, "at": iso(last), "count": len(notices)}
    return {**head, "notices": [_shape(each) for each in notices]}


def _shape(notice: Notice) -> dict[str, Json]:
    return {
        "id": notice.id,
        "cause": notice.cause,
        "job_id": notice.job_id,
        "fire": notice.fire,
        "state": notice.state,
        "reason": notice.reason,
        "error": notice.error and notice.error[:LONGEST_ERROR],
        "at": iso(notice.at),
        "count": notice.count,
    }
