"""Signing in to the dashboard: the cookie, its end, and what it cannot be used for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from starlette.requests import Request

from fencepost.settings import Settings
from fencepost.web.access import Caller, digest_of
from fencepost.web.session import LASTS, Sessions
from tests.web.dashboard.reading import HTML, Document, page, send
from tests.web.sample import sample
from tests.web.serving import client_of, service

ADMIN, READ = "the token of an admin", "the token of a reader"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with service(sample(auth_token=ADMIN, read_token=READ)) as client:
        yield client


@pytest.fixture
def browser(client: httpx2.Client) -> Iterator[httpx2.Client]:
    with client_of(str(client.base_url)) as own:
        yield own


def signed_in(browser: httpx2.Client, token: str, after: str = "/") -> httpx2.Response:
    return send(browser, "/sign-in", {"token": token, "next": after})


def test_a_page_leads_to_the_sign_in_and_back(browser: httpx2.Client) -> None:
    asked = browser.get("/jobs?sort=next", headers=HTML)
    assert asked.status_code == 303
    form = page(browser, asked.headers["location"])
    [after] = [each["value"] for each in form.named("input") if each.get("name") == "next"]
    assert after == "/jobs?sort=next"
    wrong = signed_in(browser, "wrong", after)
    assert wrong.status_code == 401
    assert "wrong" in Document(wrong.text).text
    assert "set-cookie" not in wrong.headers
    right = signed_in(browser, ADMIN, after)
    assert (right.status_code, right.headers["location"]) == (303, after)
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert f"max-age={int(LASTS.total_seconds())}" in cookie
    assert ADMIN not in right.headers["set-cookie"]
    assert "report" in page(browser, after).text


def test_the_api_and_its_events_know_who_signed_in(browser: httpx2.Client) -> None:
    signed_in(browser, READ)
    assert browser.get("/api/v1/me").json()["role"] == "read"
    assert browser.post("/api/v1/jobs/report/trigger").status_code == 403
    signed_in(browser, ADMIN)
    assert browser.get("/api/v1/me").json()["role"] == "admin"
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert browser.post("/api/v1/jobs/report/trigger", headers=elsewhere).status_code == 403


def test_a_reader_signs_out(browser: httpx2.Client) -> None:
    signed_in(browser, READ)
    shown = page(browser, "/jobs")
    assert "/sign-out" in shown.addresses
    out = send(browser, "/sign-out")
    assert out.headers["location"] == "/sign-in"
    assert "max-age=0" in out.headers["set-cookie"].lower()
    assert browser.get("/jobs", headers=HTML).status_code == 303


@pytest.mark.parametrize(
    "after", ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere", "javascript:x"]
)
def test_the_way_back_is_never_another_site(browser: httpx2.Client, after: str) -> None:
    assert signed_in(browser, ADMIN, after).headers["location"] == "/"
    [shown] = [
        each["value"]
        for each in page(browser, f"/sign-in?next={after}").named("input")
        if each.get("name") == "next"
    ]
    assert shown == "/"


def test_a_sign_in_from_another_site_is_refused(browser: httpx2.Client) -> None:
    fields = {"token": ADMIN, "next": "/"}
    answer = browser.post("/sign-in", data=fields, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403
    assert browser.post("/sign-in", data=fields).status_code == 403


def test_without_tokens_nobody_signs_in() -> None:
    with service(sample()) as client:
        assert client.get("/sign-in", headers=HTML).headers["location"] == "/"
        assert send(client, "/sign-in", {"token": "x"}).status_code == 404
        assert "/sign-out" not in page(client, "/jobs").addresses


def test_where_the_host_decides_there_is_no_sign_in() -> None:
    with service(sample(), authorize=lambda request: None) as client:
        assert "sign in to the application first" in page(client, "/", 401).text


def test_preferences_are_remembered(browser: httpx2.Client) -> None:
    signed_in(browser, READ)
    assert send(browser, "/preferences", {"theme": "dark", "next": "/jobs"}).headers["location"] == "/jobs"
    assert page(browser, "/jobs").named("html")[0]["data-theme"] == "dark"
    assert page(browser, "/jobs").named("body")[0]["data-live"] == "on"
    send(browser, "/preferences", {"live": "off", "theme": "purple", "next": "//x"})
    shown = page(browser, "/jobs")
    assert "data-live" not in shown.named("body")[0]
    assert shown.named("html")[0]["data-theme"] == "dark"


# --- the cookie itself ------------------------------------------------------------------------------------------


class Later:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 17, tzinfo=UTC)

    def wall(self) -> datetime:
        return self.now

    def steady(self) -> float:
        return 0.0


SETTINGS = Settings(store="memory://", auth_token=ADMIN, read_token=READ)
TOKENS = {digest_of(ADMIN): Caller("admin"), digest_of(READ): Caller("read")}


def with_cookie(sessions: Sessions, value: str) -> Request:
    cookie = f"{sessions.cookie}={value}".encode("latin-1")
    return Request({"type": "http", "headers": [(b"cookie", cookie)]})


def test_it_ends_by_itself_and_with_its_token() -> None:
    clock = Later()
    sessions = Sessions(SETTINGS, clock)
    given = sessions.issue(digest_of(READ))
    assert sessions.caller(with_cookie(sessions, given), TOKENS) == Caller("read")
    assert sessions.caller(with_cookie(sessions, given), {digest_of(ADMIN): Caller("admin")}) is None
    clock.now += LASTS - timedelta(seconds=1)
    assert sessions.caller(with_cookie(sessions, given), TOKENS) == Caller("read")
    clock.now += timedelta(seconds=1)
    assert sessions.caller(with_cookie(sessions, given), TOKENS) is None


def test_it_cannot_be_changed_or_made_elsewhere() -> None:
    clock = Later()
    sessions = Sessions(SETTINGS, clock)
    admin, read = (sessions.issue(digest_of(token)) for token in (ADMIN, READ))
    mark, until, signature = read.split(".")
    forged = [
        "",
        "x",
        "..",
        f"{admin.split('.')[0]}.{until}.{signature}",
        f"{mark}.{int(until) + 1}.{signature}",
        f"{mark}.{until}.{signature[:-1]}",
        f"{mark}.{until}.",
        f"{mark}.{until}.\xe9",
        Sessions(replace(SETTINGS, auth_token="another one of them"), clock).issue(digest_of(ADMIN)),
    ]
    for value in forged:
        assert sessions.caller(with_cookie(sessions, value), TOKENS) is None, value
    assert Sessions(SETTINGS, clock).caller(with_cookie(sessions, admin), TOKENS) == Caller("admin")


def test_hashes_alone_do_not_make_a_cookie() -> None:
    """Who reads the file of tokens must not be able to sign in with it: each process has a key of its own then."""
    hashed = Settings(store="memory://", tokens_file="tokens.toml")
    one, two = Sessions(hashed), Sessions(hashed)
    assert two.caller(with_cookie(two, one.issue(digest_of(ADMIN))), TOKENS) is None
    assert one.caller(with_cookie(one, one.issue(digest_of(ADMIN))), TOKENS) == Caller("admin")
