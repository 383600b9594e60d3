"""The claims of one job: its tokens, and whether one run ended before the next began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from fencepost.insight.audit.report import AuditFinding, Kind
from fencepost.model import MAX_ATTEMPTS_KEPT, FireRecord, JobEvent, State
from fencepost.model.periods import pauses_of

AGAIN = ("retry", "given back", "lost", "gone")
"""How an attempt ends that another one may follow."""


class TokensSeen:
    """A set of numbers at a bit each: tokens lie close together, and there may be millions of them."""

    CHUNK = 1024

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, token: int) -> bool:
        """Whether it is new."""
        chunk, bit = divmod(token, self.CHUNK)
        known = self._chunks.get(chunk, 0)
        self._chunks[chunk] = known | 1 << bit
        return not known >> bit & 1


class AuditedClaims:
    """Checks one fire after the other, in the order of their due times."""

    def __init__(self, history: Sequence[JobEvent]) -> None:
        self._follows = any(event.trigger and event.trigger.get("type") == "after" for event in history)
        """Its fires come when its parents end, with their due times: in any order, and also in a pause."""
        began = [event for event in history if event.kind == "paused"]
        self._pauses = list(zip(pauses_of(history), began, strict=True))
        self._seen = TokensSeen()
        self._last: tuple[int, str] = (0, "")
        """First token and key of the last scheduled fire that was claimed."""

    def check(self, fire: FireRecord) -> Iterator[AuditFinding]:
        if not fire.token:
            return
        yield from self._tokens(fire)
        yield from _one_after_the_other(fire)
        if fire.scheduled:
            yield from self._held_by_pauses(fire)

    def _tokens(self, fire: FireRecord) -> Iterator[AuditFinding]:
        tokens = [attempt.token for attempt in fire.attempts]
        if fire.state is State.RUNNING:
            tokens.append(fire.token)
        elif tokens[-1:] != [fire.token]:
            yield _tokens(
                fire, f"claimed with token {fire.token}, and the end of that claim is not on record"
            )
            tokens.append(fire.token)
        for earlier, later in pairwise(tokens):
            if later <= earlier:
                yield _tokens(fire, f"token {later} was given out after {earlier}")
        for token in dict.fromkeys(tokens):
            if not self._seen.add(token):
                yield _tokens(fire, f"token {token} was given out twice")
        unordered = self._follows or fire.jitter_seconds
        if not fire.scheduled or unordered or len(fire.attempts) == MAX_ATTEMPTS_KEPT:
            return
        # The first claims of scheduled fires come in the order of due times, whatever the clocks said, unless chance
        # has put them off.
        last, key = self._last
        if tokens[0] <= last:
            yield _tokens(fire, f"token {tokens[0]}, although the earlier fire {key} got {last}")
        self._last = tokens[0], fire.key

    def _held_by_pauses(self, fire: FireRecord) -> Iterator[AuditFinding]:
        """What falls due in a pause is skipped, and nothing scheduled starts while one lasts. Where the store's clock
        was set back, what came before a pause may bear a later time. The pause itself knows better: by the last token
        given out before it began, and the last fire decided."""
        for pause, began in self._pauses:
            starts = [start for token, start in _claims(fire) if token > began.token]
            decided_before = began.at < fire.due_at <= began.since
            if starts and pause.covers(fire.due_at) and not decided_before and not self._follows:
                why = f"it fell due in the pause of {pause.since:%Y-%m-%d %H:%M:%S}Z, and was claimed"
            elif any(pause.covers(start) for start in starts):
                why = f"it was claimed during the pause of {pause.since:%Y-%m-%d %H:%M:%S}Z"
            else:
                continue
            yield AuditFinding(Kind.PAUSE_IGNORED, fire.job_id, fire.due_at, why, fire.key)
            return


def _claims(fire: FireRecord) -> Iterator[tuple[int, datetime]]:
    """Token and time of each."""
    for attempt in fire.attempts:
        yield attempt.token, attempt.started_at
    if fire.state is State.RUNNING and fire.started_at is not None:
        yield fire.token, fire.started_at


def _one_after_the_other(fire: FireRecord) -> Iterator[AuditFinding]:
    """A further attempt needs the end of the one before: settled for a retry, given back, or lost. (Where the
    store's clock was stepped back between two attempts they seem to overlap.)"""

    def doubled(why: str) -> AuditFinding:
        return AuditFinding(Kind.DOUBLED, fire.job_id, fire.due_at, why, fire.key)

    on_its_way = fire.state in (State.RUNNING, State.WAITING)
    followed = fire.attempts if on_its_way else fire.attempts[:-1]
    for attempt in followed:
        if attempt.outcome not in AGAIN:
            yield doubled(f"run again although token {attempt.token} had ended as {attempt.outcome!r}")
    starts = [start for _, start in _claims(fire)][1:]
    for attempt, start in zip(fire.attempts, starts, strict=False):
        if start < attempt.finished_at:
            yield doubled(f"run again before token {attempt.token} had ended: the two runs overlap")
    given_back = sum(attempt.outcome == "given back" for attempt in fire.attempts)
    recorded = len(fire.attempts) + (fire.state is State.RUNNING)
    if len(fire.attempts) < MAX_ATTEMPTS_KEPT and recorded != fire.attempt + given_back:
        claims = fire.attempt + given_back
        yield doubled(f"claimed {claims} times, but {recorded} claims are on record")


def _tokens(fire: FireRecord, why: str) -> AuditFinding:
    return AuditFinding(Kind.TOKENS, fire.job_id, fire.due_at, why, fire.key)
