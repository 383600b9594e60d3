"""`healthchecks(url)`: each run pings Healthchecks: when it starts, when it has succeeded, when it has failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model.notices import EVERY_RUN, Causes, Notice
from fencepost.notify.http import TIMEOUT, Target, post
from fencepost.notify.runs import Step, run_id, slug_of, step_of
from fencepost.notify.sending import checked_name, checked_seconds
from fencepost.notify.words import message_for

LONGEST_SLUG = 100
LONGEST_BODY = 10_000
"""Bytes of text. Older servers keep as many, newer ones ten times as many."""
ENDINGS: Mapping[Step | None, str] = {"started": "/start", "succeeded": "", "failed": "/fail", None: "/log"}
REFUSED = {"OK (not found)": None, "OK (rate limited)": 60.0}
"""What a server says with status 200 although it has dropped the ping, and when to try again."""


def healthchecks(
    url: str, *, create: bool = False, name: str = "healthchecks", timeout: object = TIMEOUT
) -> Healthchecks:
    """`url`: of one check, `https://hc-ping.com/<uuid>`; or with the project's ping key, `https://hc-ping.com/<key>`:
    then each job pings the check whose slug is the job's id. `create`: make such a check if there is none."""
    target = Target.of(str(url).rstrip("/"), "url")
    if target.parts.query:
        raise ConfigurationError(
            "url has a ? in it; give the ping URL of a check, or its beginning up to the ping key"
        )
    if len(target.parts.path) < 2:
        raise ConfigurationError("url ends with the host; add the check's UUID, or the project's ping key")
    return Healthchecks(checked_name(name), target, bool(create), checked_seconds(timeout))


@dataclass(frozen=True)
class Healthchecks:
    name: str
    target: Target
    create: bool = False
    timeout: float = TIMEOUT
    causes: Causes = EVERY_RUN

    async def deliver(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            step = step_of(notice)
            if step is not None or notice.cause == "test":
                await self._ping(notice, step)

    async def _ping(self, notice: Notice, step: Step | None) -> None:
        body = _text(notice) if step in ("failed", None) else ""
        answer = await post(
            self._address(notice, step),
            body.encode()[-LONGEST_BODY:].decode("utf-8", "ignore").encode(),
            {"Content-Type": "text/plain; charset=utf-8"},
            self.timeout,
        )
        said = answer.text.strip()
        if said in REFUSED:
            raise DeliveryFailed(f"{self.target.host} answers {said}", retry_after=REFUSED[said])

    def _address(self, notice: Notice, step: Step | None) -> Target:
        query = f"rid={run_id(notice)}"
        if _is_check(self.target):
            return Target(f"{self.target.url}{ENDINGS[step]}?{query}")
        slug = slug_of(notice.job_id, LONGEST_SLUG)
        create = "&create=1" if self.create and step is not None else ""
        return Target(f"{self.target.url}/{slug}{ENDINGS[step]}?{query}{create}")


def _is_check(target: Target) -> bool:
    """Whether the address is that of a check, or only begins those of the project's checks."""
    last = target.parts.path.rpartition("/")[2]
    try:
        return re.fullmatch(r"[0-9a-fA-F-]{36}", last) is not None and bool(UUID(last))
    except ValueError:
        return False


def _text(notice: Notice) -> str:
    """What went wrong, then the end of the output."""
    message = message_for([notice])
    return "\n".join((message.subject, *message.lines, *(("", message.output) if message.output else ())))
