"""Rules made over the API and by commands: they hold at once, are kept in the store, and say who made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler, every
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.model.watching import checked_causes
from fencepost.notify.causes import causes_from, words_of
from fencepost.scheduler.jobfile import read_again, scheduler_from
from fencepost.web.access import Caller
from tests.notify.test_outbox_shown import command
from tests.web.sample import ended, triggered
from tests.web.serving import QUICK, eventually, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file

ADA, OPERATOR = Caller("admin", "ada"), Caller("operate", "op")
READER, TEAM = Caller("read", "reader"), Caller("admin", "team", ("report",))
CALLERS = (ADA, OPERATOR, READER, TEAM)
RULES = "/api/v1/notifications/rules"
ASKED = {"channel": "board", "on": ["failed", "late 5m"], "jobs": "rep*", "quiet": None, "digest": None}


@dataclass(eq=False)
class Board:
    name: str = "board"
    causes: Causes = ALERTS
    taken: list[Notice] = field(default_factory=list)

    async def deliver(self, notices: Sequence[Notice]) -> None:
        self.taken += notices


def application(store: str, **settings: Any) -> tuple[Scheduler, Board]:
    """A channel without a rule of its own, and a job that fails."""
    scheduler, board = Scheduler(store, **settings), Board()
    scheduler.notify(board, on=frozenset())

    @scheduler.job(every(hours=1), id="report")
    def report() -> None:
        raise ValueError("no rows")

    return scheduler, board


@dataclass
class Served:
    client: httpx2.Client
    board: Board
    store: str
    headers: dict[str, dict[str, str]]

    def put(self, name: str, caller: str = "ada", **changes: Any) -> httpx2.Response:
        return self.client.put(f"{RULES}/{name}", json={**ASKED, **changes}, headers=self.headers[caller])

    def rules(self, caller: str = "reader") -> Any:
        return self.client.get(RULES, headers=self.headers[caller]).json()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    path, made = tokens_file(tmp_path, *CALLERS)
    headers = {caller.name: bearer(token) for caller, token in zip(CALLERS, made, strict=True)}
    store = f"sqlite:///{tmp_path}/jobs.db"
    scheduler, board = application(store, tokens_file=str(path), **QUICK)
    with service(scheduler) as client:
        found = Served(client, board, store, headers)
        client.headers.update(headers["op"])
        eventually(lambda: "board" in client.get("/api/v1/notifications").text)  # the leader has said so
        yield found


def test_a_rule_made_over_the_api_holds_at_once_and_says_who_made_it(served: Served) -> None:
    made = served.put("ours")
    assert made.status_code == 200, made.text
    expected = {
        "name": "ours",
        "source": "api",
        "channel": "board",
        "on": ["failed", "late 5m"],
        "jobs": "rep*",
        "quiet": None,
        "digest_seconds": None,
        "by": "ada",
    }
    assert made.json() == expected
    ended(served.client, triggered(served.client, "report"))
    eventually(lambda: [each.cause for each in served.board.taken] == ["failed"])
    assert served.put("ours", on=expected["on"]).json() == expected  # as it was shown
    found = served.rules()
    assert (found["items"], len(found["changes"])) == ([expected], 1)
    assert served.client.delete(f"{RULES}/ours", headers=served.headers["ada"]).json() == {"name": "ours"}
    assert served.client.delete(f"{RULES}/ours", headers=served.headers["ada"]).status_code == 404
    found = served.rules()
    assert found["items"] == []
    assert [(each["by"], each["rule"]) for each in found["changes"]] == [("ada", None), ("ada", expected)]


def test_what_a_rule_may_not_be(served: Served) -> None:
    wrong: list[dict[str, Any]] = [
        {"channel": "boart"},
        {"channel": "https://hooks.example.com/secret"},
        {"on": []},
        {"on": ["late"]},
        {"on": ["late 0s"]},
        {"on": ["late:300"]},
        {"on": ["exploded"]},
        {"on": ["failed"] * 21},
        {"jobs": "tags:x"},
        {"jobs": "x" * 301},
        {"quiet": "at night"},
        {"digest": "8 days"},
        {"url": "https://hooks.example.com/secret"},
    ]
    for changes in wrong:
        answer = served.put("ours", **changes)
        assert answer.status_code == 422, (changes, answer.text)
    assert "did you mean 'board'" in served.put("ours", channel="boart").json()["detail"]
    assert served.put("a%20b").status_code == 404
    assert served.rules() == {"items": [], "changes": []}


def test_who_may_change_rules(served: Served) -> None:
    assert served.put("ours", "op").status_code == 403
    assert served.put("ours", "reader").status_code == 403
    assert served.put("ours", "team").status_code == 403  # a rule may be about jobs that the token excludes
    assert served.put("ours").status_code == 200
    assert served.client.delete(f"{RULES}/ours", headers=served.headers["team"]).status_code == 403
    assert served.rules("team") == {"items": [], "changes": []}
    assert [each["name"] for each in served.rules()["items"]] == ["ours"]


def test_rules_by_commands(served: Served) -> None:
    code, made = command(
        served.store, "notify", "set", "mine", "--channel", "board", "--on", "failed,late 5m"
    )
    assert (code, made["on"], made["changed"], made["jobs"]) == (0, ["failed", "late 5m"], True, None)
    ended(served.client, triggered(served.client, "report"))
    eventually(lambda: [each.cause for each in served.board.taken] == ["failed"])
    _, listed = command(served.store, "notify", "rules")
    assert [(each["name"], each["source"]) for each in listed["items"]] == [("mine", "api")]
    assert listed["changes"][0]["by"] == made["by"]
    assert command(served.store, "notify", "unset", "mine") == (0, {"name": "mine"})
    assert command(served.store, "notify", "rules")[1]["items"] == []


def test_causes_are_shown_as_they_are_written() -> None:
    written = ["failed", "failed_in_a_row 3", "late 5m", "no_success_for 26h"]
    assert words_of(checked_causes(causes_from(written))) == written
    assert words_of(["late:90", "no_success:172800"]) == ["late 90s", "no_success_for 2d"]


def test_a_changed_table_is_not_ignored_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "fencepost.toml"
    table = '[jobs.a]\nevery = "1h"\ncommand = ["true"]\n[[notify]]\nchannel = "webhook"\nurl = "http://127.0.0.1:9/"\n'
    path.write_text(table)
    scheduler = scheduler_from(path)
    read_again(scheduler)
    assert "[[notify]]" not in caplog.text
    path.write_text(table + 'on = ["lost"]\n')
    read_again(scheduler)
    assert "[[notify]] has changed" in caplog.text
