"""Jobs and fires by what people type: an id, a key, a short key, or the job whose latest fire is meant.

A *short key* fits into a narrow table and can be pasted back: `report@03:00:00Z` is the latest fire of that time,
`report@11-14T03:00:00Z` the one of that day, `send!5f1c9a0e` the manual fire whose name begins like that. `…` in the
job's id stands for what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from fencepost.errors import UsageError
from fencepost.model import FireRecord, JobRecord
from fencepost.settings import did_you_mean
from fencepost.store.base import FireQuery, Readable
from fencepost.store.rereading import readable_job

TIME_ALONE = timedelta(hours=12)
"""A fire due this recently is named by the time of day: pasted back within as long again, it still is the latest."""
YEAR_LEFT_OUT = timedelta(days=180)
SHORT_NAME = 8
"""Letters of a manual fire's name."""
MOST_FIRES = 1000
MOST_LISTED = 5

_MOMENT = re.compile(
    r"(?:(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d)T)?"
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<micro>\d{1,6}))?)?Z?"
)


# --- jobs -----------------------------------------------------------------------------------------------


async def stored_job(store: Readable, job_id: str) -> JobRecord:
    record = await readable_job(store, job_id)
    if record is None:
        raise await no_such_job(store, job_id)
    return record


async def no_such_job(store: Readable, job_id: str) -> UsageError:
    known = sorted(record.id for record in await store.jobs())
    hint = did_you_mean(job_id, known) or "; `fencepost jobs` lists what there is"
    return UsageError(f"there is no job {job_id!r} in the store{hint}")


# --- fires ----------------------------------------------------------------------------------------------


async def fire_or_latest(store: Readable, text: str) -> FireRecord:
    """By its key or a short key; or the latest fire of the job with this id."""
    return await stored_fire(store, text) if _parts(text)[1] else await _latest_or_refuse(store, text)


async def stored_fire(store: Readable, text: str) -> FireRecord:
    """By its key or a short key."""
    if found := await store.find_fires(FireQuery(key=text)):
        return found[0]
    job, mark, rest = _parts(text)
    for job_id in await _jobs_like(store, job):
        matches = await _matching(store, job_id, mark, rest)
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = ", ".join(fire.key for fire in matches[:MOST_LISTED])
            more = ", …" if len(matches) > MOST_LISTED else ""
            raise UsageError(
                f"{text!r} may be any of {len(matches)} fires: {listed}{more}; give one of these keys"
            )
    raise await _no_such_fire(store, text, job)


async def latest_fire(store: Readable, job_id: str) -> FireRecord | None:
    """The newest that is due; None: there is none."""
    now = (await store.roster()).now
    query = FireQuery(job_id=job_id, until=now + datetime.resolution, limit=20)
    # A row that stands for several fires is as new as the last of them.
    return max(await store.find_fires(query), key=lambda fire: fire.last_due, default=None)


async def _latest_or_refuse(store: Readable, job_id: str) -> FireRecord:
    if fire := await latest_fire(store, job_id):
        return fire
    if not await store.jobs([job_id]) and not await store.history(job_id):
        known = [record.id for record in await store.jobs()]
        hint = did_you_mean(job_id, known) or "; `fencepost fires` lists them, `fencepost jobs` the jobs"
        raise UsageError(f"there is no fire and no job {job_id!r}{hint}")
    raise UsageError(f"job {job_id!r} has no fire yet: none was due, and none was triggered")


async def _no_such_fire(store: Readable, text: str, job_id: str) -> UsageError:
    near = [fire.key for fire in await store.find_fires(FireQuery(job_id=job_id, limit=MOST_FIRES))]
    hint = did_you_mean(text, near)
    if not hint and "@" in text:
        hint = f"; `fencepost why {job_id} {text.split('@')[1]}` may know"
    return UsageError(f"there is no fire {text!r}{hint or '; `fencepost fires` lists them'}")


def _parts(text: str) -> tuple[str, str, str]:
    """Job, `@` or `!`, and the rest. A manual fire's name may hold an `@`, no job's id holds either."""
    found = re.search("[@!]", text)
    return (text[: found.start()], found[0], text[found.end() :]) if found else (text, "", "")


async def _jobs_like(store: Readable, job: str) -> Sequence[str]:
    if "…" not in job:
        return [job]
    start, _, end = job.partition("…")
    return [
        record.id
        for record in await store.jobs()
        if len(record.id) > len(job) - 1 and record.id.startswith(start) and record.id.endswith(end)
    ]


async def _matching(store: Readable, job_id: str, mark: str, rest: str) -> Sequence[FireRecord]:
    if mark == "!":
        name = f"{job_id}!{rest.rstrip('…')}"
        found = await store.find_fires(FireQuery(job_id=job_id, limit=MOST_FIRES))
        return [fire for fire in found if fire.key.startswith(name)]
    now = (await store.roster()).now
    due = moment_meant(rest, now)
    if due is None:
        return ()
    found = await store.find_fires(FireQuery(job_id=job_id, since=due, until=due + datetime.resolution))
    return [fire for fire in found if fire.scheduled and fire.due_at == due]


# --- short keys -----------------------------------------------------------------------------------------


def short_key(fire: FireRecord, now: datetime, width: int) -> str:
    """At most so many characters, 24 or more. `stored_fire` finds the fire by it."""
    job, mark, rest = _parts(fire.key)
    if mark == "@":
        rest = short_moment(fire.due_at, now)
    elif len(rest) > SHORT_NAME + 1:
        hexadecimal = re.fullmatch(r"[0-9a-f]{16}", rest)
        rest = rest[:SHORT_NAME] if hexadecimal else f"{rest[:SHORT_NAME]}…"
    return f"{shortened(job, width - len(rest) - 1)}{mark}{rest}"


def short_moment(due: datetime, now: datetime) -> str:
    text = due.astimezone(UTC).replace(tzinfo=None).isoformat()
    if due <= now < due + TIME_ALONE:
        return f"{text.partition('T')[2]}Z"
    return f"{text[5:] if abs(now - due) < YEAR_LEFT_OUT else text}Z"


def shortened(text: str, width: int) -> str:
    """With the middle left out: names often differ at their end."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def moment_meant(text: str, now: datetime) -> datetime | None:
    """Of a short key: a time of day is the latest that has been, a day without a year the nearest one."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    given = {
        name: int(value) for name, value in found.groupdict("0").items() if name not in ("year", "micro")
    }
    micro = int((found["micro"] or "0").ljust(6, "0"))
    try:
        at = now.astimezone(UTC).replace(
            hour=given["hour"], minute=given["minute"], second=given["second"], microsecond=micro
        )
    except ValueError:
        return None
    if not given["month"]:
        return at if at <= now else at - timedelta(days=1)
    years = [int(found["year"])] if found["year"] else [now.year - 1, now.year, now.year + 1]
    days = []
    for year in years:
        with suppress(ValueError):  # no such day, or not in this year
            days.append(at.replace(year=year, month=given["month"], day=given["day"]))
    return min(days, key=lambda day: abs(day - now), default=None)
