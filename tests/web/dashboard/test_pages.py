"""Every page over real HTTP: what it shows, what its forms do, and the traps that others have fallen into."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from fencepost import Fire, Retry, Scheduler, cron, every
from fencepost.model.triggers import from_iso
from fencepost.web.access import Caller
from fencepost.web.app import WebApp
from fencepost.web.dashboard.pages import PAGES
from fencepost.web.dashboard.render import asset, lateness
from tests.web.dashboard.reading import HTML, Document, page, send
from tests.web.sample import FAR, ended, triggered
from tests.web.serving import QUICK, client_of, eventually, served, service
from tests.web.test_auth import bearer

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
log = logging.getLogger("dashboard")
log.setLevel("INFO")
ODD = "team:odd.name-with_all.of-it"
OPERATE, READ = "the token of an operator", "the token of a reader"


def scheduler(**options: Any) -> Scheduler:
    scheduler = Scheduler("memory://", **{**QUICK, **options})

    @scheduler.job(cron("30 2 * * *", tz="Europe/Zurich"), id="report", args={"region": "ch", "days": 7})
    async def report(region: str, days: int, dry: bool = False, more: dict[str, Any] | None = None) -> Any:
        log.info(f"reporting on {region}")
        return {"region": region, "days": days, "dry": dry, "more": more}

    @scheduler.task(id="nasty")
    async def nasty(text: str = NASTY) -> str:
        log.warning(text)
        raise ValueError(text)

    @scheduler.task(id=ODD)
    async def odd() -> None: ...

    @scheduler.task(id="hold")
    async def hold(fire: Fire) -> None:
        fire.report(done=1, total=4, message=NASTY)
        await asyncio.sleep(60)

    @scheduler.job(FAR, id="never")
    async def never() -> None: ...

    @scheduler.job(FAR, id="second-try", retry=Retry(attempts=2, first=1))
    async def second_try(fire: Fire) -> None:
        if fire.attempt == 1:
            raise ConnectionError("the other side did not answer")

    return scheduler


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with service(scheduler()) as client:
        yield client


def everything(client: httpx2.Client) -> list[str]:
    """An address of every page, with a job that has run and one that has not."""
    failed = triggered(client, "nasty")
    ended(client, failed)
    kept = {"id": "report", "key": failed}
    paths = [each.path.format(**kept) for each in PAGES if each.path not in ("/find", "/bulk")]
    more = [
        "/?span=30d",
        "/jobs?sort=next",
        "/jobs/never",
        "/fires?state=failed",
        "/find?q=o",
        "/audit?run=1",
    ]
    return [*paths, *more, "/bulk?do=pause&job=report&job=never", "/jobs/report?at=02:30&tz=Europe/Zurich"]


def test_every_page_is_complete_and_keeps_to_the_policy(client: httpx2.Client) -> None:
    for path in everything(client):
        answer = client.get(path, headers=HTML)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        found = Document(answer.text)
        assert not found.named("style"), path
        assert not any("style" in attributes for _, attributes in found.elements), path
        assert all(each.get("src") for each in found.named("script")), path
        assert len([tag for tag, _ in found.elements if tag == "h1"]) == 1, path
        assert found.named("main"), path


def test_what_people_write_stays_text(client: httpx2.Client) -> None:
    with service(scheduler(), authorize=lambda request: Caller("admin", NASTY)) as client:
        key = triggered(client, "nasty", args={"text": NASTY})
        ended(client, key)
        held = triggered(client, "hold")
        eventually(lambda: client.get(f"/api/v1/fires/{held}").json()["progress"])
        send(client, "/jobs/report/pause", {"reason": NASTY})
        for path in [
            *everything(client),
            f"/fires/{key}",
            f"/fires/{held}",
            f"/find?q={quote(NASTY)}",
            f"/jobs?q={quote(NASTY)}",
        ]:
            text = client.get(path, headers=HTML).text
            found = Document(text)
            assert not found.named("img"), path
            assert [each["type"] for each in found.named("script")] == ["module"], path
            assert not [name for _, each in found.elements for name in each if name.startswith("on")], path
        shown = Document(client.get(f"/fires/{key}", headers=HTML).text).text
        assert "<script>alert(1)</script>" in shown
        client.post(f"/api/v1/fires/{held}/cancel")


def test_a_job_that_never_ran_has_not_failed(client: httpx2.Client) -> None:
    for path in ("/jobs/never", "/jobs?q=never", "/?q=never"):
        shown = page(client, path).text
        assert "no run yet" in shown
    assert not [each for each in page(client, "/jobs?state=failing").addresses if "/jobs/never" in each]


def test_a_retried_run_is_as_late_as_its_first_attempt(client: httpx2.Client) -> None:
    """The job's page agrees with the ledger."""
    fire = ended(client, triggered(client, "second-try"))
    assert (fire["state"], fire["attempt"]) == ("succeeded", 2)
    late = lateness(fire["late_seconds"])
    again = (from_iso(fire["started_at"]) - from_iso(fire["due_at"])).total_seconds()
    assert lateness(again) != late
    assert f", {late}." in page(client, "/jobs/second-try").text
    assert late in page(client, "/fires?job=second-try").text
    assert late in page(client, f"/fires/{fire['key']}").text


def test_keys_with_all_their_signs_are_found(client: httpx2.Client) -> None:
    key = triggered(client, ODD, idempotency_key="a:b.c-d")
    ended(client, key)
    assert key == f"{ODD}!a:b.c-d"
    for address in (f"/fires/{key}", f"/fires/{quote(key, safe='')}"):
        assert key in page(client, address).text
    listed = page(client, f"/fires?job={ODD}")
    [link] = [each for each in listed.addresses if each.startswith("/fires/team")]
    assert key in page(client, link).text
    assert page(client, f"/jobs/{quote(ODD, safe='')}").text
    assert (
        "there is no fire"
        in page(client, f"/fires/{quote(f'{ODD}@2026-01-01T00:00:00.000000Z', safe='')}", 404).text
    )
    for address in ("/jobs/a%2Fb", "/fires/a%2Fb%21c", "/jobs/a/b/c", "/fires/%00", "/jobs/%ff"):
        assert client.get(address, headers=HTML).status_code == 404


def test_addresses_that_make_no_sense_show_something(client: httpx2.Client) -> None:
    for path in (
        "/?span=9000d&until=never&after=%F0%9F%98%80",
        "/jobs?page=-1&sort=x&state=x",
        "/jobs?sort=next&page=99999",
        "/cluster?span=1s",
        "/load?tz=Nowhere/At_All",
        "/?tz=../../etc/passwd",
        f"/jobs/report?at={quote(NASTY)}",
    ):
        page(client, path)
    assert "no time" in page(client, "/jobs/report?at=soon").text
    page(client, "/fires?cursor=x", 422)
    page(client, "/fires?since=x", 422)
    page(client, "/bulk?do=explode&job=report", 422)
    page(client, "/bulk?do=pause&job=" + "&job=".join(map(str, range(101))), 422)


def test_links_keep_the_zone(client: httpx2.Client) -> None:
    shown = page(client, "/jobs/report?tz=Europe/Zurich")
    assert "02:30:00 CET" in shown.text or "02:30:00 CEST" in shown.text
    ours = [each["href"] for each in shown.named("a") if each["href"].startswith("/")]
    assert ours
    assert all("tz=Europe%2FZurich" in each for each in ours)


def test_the_first_page_with_everything_is_small(client: httpx2.Client) -> None:
    everything(client)
    whole = client.get("/", headers=HTML).content
    files = [asset(name) for name in ("dashboard.css", "dashboard.js", "mark.svg")]
    assert sum(len(gzip.compress(each, 3)) for each in (whole, *files)) < 60_000
    sheet = next(each for each in Document(whole.decode()).addresses if each.endswith(".css"))
    answer = client.get(sheet)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert client.get("/assets/dashboard.css").status_code == 404


def test_only_the_middle_is_sent_to_the_script(client: httpx2.Client) -> None:
    part = client.get("/jobs", headers={**HTML, "Fencepost-Part": "main"}).text
    assert "<html" not in part
    assert "report" in part


# --- acting ---------------------------------------------------------------------------------------------------


def test_run_with_arguments_from_the_signature(client: httpx2.Client) -> None:
    form = page(client, "/jobs/report/run")
    fields = {each["name"]: each.get("value", "") for each in form.named("input") if "name" in each}
    assert fields["arg.region"] == "ch"
    assert fields["arg.days"] == "7"
    assert [each["name"] for each in form.named("select") if each["name"].startswith("arg.")] == ["arg.dry"]
    given = {"arg.region": "de", "arg.days": "3", "arg.dry": "true", "arg.more": '{"a": [1]}'}
    answer = send(client, "/jobs/report/run", given)
    assert answer.status_code == 303
    key = answer.headers["location"].partition("?")[0].rpartition("/")[2].replace("%21", "!")
    fire = ended(client, key)
    assert fire["result"] == {"region": "de", "days": 3, "dry": True, "more": {"a": [1]}}
    assert "reporting on de" in page(client, answer.headers["location"]).text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"arg.region": "de", "arg.days": "many"}, "days: 'many' is no JSON"),
        ({"arg.region": "de", "arg.days": "1.5"}, "days: enter a whole number"),
        ({"arg.region": "de", "arg.days": "1", "arg.more": "{"}, "more: '{' is no JSON"),
        ({"arg.region": "de", "arg.days": "1", "arg.more": "NaN"}, "more: NaN is no JSON"),
        ({"arg.region": "x" * 70_000, "arg.days": "1"}, "region: at most"),
    ],
)
def test_what_does_not_fit_is_shown_again(client: httpx2.Client, fields: dict[str, str], told: str) -> None:
    answer = send(client, "/jobs/report/run", fields)
    assert answer.status_code == 422
    shown = Document(answer.text)
    assert told in shown.text
    assert fields["arg.region"] in [each.get("value") for each in shown.named("input")]


def test_pause_with_reason_and_end_then_resume(client: httpx2.Client) -> None:
    assert send(client, "/jobs/never/pause", {"reason": "moving house", "until": "2h"}).status_code == 303
    shown = page(client, "/jobs/never").text
    assert "moving house" in shown
    assert "by api" in shown
    wrong = send(client, "/jobs/never/pause", {"reason": "x", "until": "yesterday"})
    assert wrong.status_code == 422
    assert "yesterday" in wrong.text
    assert send(client, "/jobs/never/resume").headers["location"] == "/jobs/never?done=resumed"
    assert "moving house" not in page(client, "/?q=never").text


def test_cancel_and_retry(client: httpx2.Client) -> None:
    key = triggered(client, "hold")
    eventually(lambda: client.get(f"/api/v1/fires/{key}").json()["progress"])
    shown = page(client, f"/fires/{key}")
    assert [each for each in shown.named("progress") if each.get("max") == "4.0" or each.get("max") == "4"]
    assert send(client, f"/fires/{key}/cancel").status_code == 303
    assert ended(client, key)["state"] == "cancelled"
    assert send(client, f"/fires/{key}/cancel").status_code == 409
    answer = send(client, f"/fires/{key}/retry")
    assert answer.status_code == 303
    again = answer.headers["location"].partition("?")[0]
    assert key in page(client, again).text  # retry of
    send(client, f"{again}/cancel")


def test_bulk_names_everything_before_it_acts(client: httpx2.Client) -> None:
    form = page(client, "/bulk?do=pause&job=report&job=never")
    named = [each["value"] for each in form.named("input") if each.get("name") == "job"]
    assert list(dict.fromkeys(named)) == ["report", "never"]
    assert "Pause 2 jobs" in form.text
    assert client.get("/api/v1/jobs/never").json()["paused"] is None
    done = send(client, "/bulk", {"do": "pause", "job": ["report", "never", "none"], "reason": "all of it"})
    assert done.status_code == 200
    assert "2 of 3 done" in Document(done.text).text
    assert "there is no job" in done.text
    assert client.get("/api/v1/jobs/never").json()["paused"]["reason"] == "all of it"
    send(client, "/bulk", {"do": "resume", "job": ["report", "never"]})
    assert client.get("/api/v1/jobs/report").json()["paused"] is None


def test_a_job_is_defined_changed_and_removed_by_forms(client: httpx2.Client) -> None:
    """Without a script: a preview first, then the same form once more."""
    given = {
        "id": "made.here",
        "task": "report",
        "kind": "cron",
        "schedule": "0 8 * * mon",
        "version": "none",
    }
    given |= {
        "tz": "Europe/Zurich",
        "args": '{"region": "ch", "days": 1}',
        "tags": "a, b",
        "misfire": "latest",
    }
    wrong = send(client, "/define", {**given, "schedule": "0 99 * * *"})
    assert wrong.status_code == 422
    assert "99" in wrong.text
    seen = Document(send(client, "/define", {**given, "do": "preview"}).text)
    assert "This would create it" in seen.text
    assert client.get("/api/v1/jobs/made.here").status_code == 404
    kept = {each["name"]: each.get("value", "") for each in seen.named("input") if each.get("name")}
    assert (kept["version"], kept["schedule"]) == ("none", "0 8 * * mon")
    assert send(client, "/define", {**given, "do": "save"}).status_code == 303
    job = client.get("/api/v1/jobs/made.here").json()
    assert (job["source"], job["tags"], job["history"][0]["by"]) == ("api", ["a", "b"], "api")
    form = page(client, "/jobs/made.here/edit")
    version = next(each["value"] for each in form.named("input") if each["name"] == "version")
    change = {
        "task": "report",
        "kind": "keep",
        "args": '{"region": "de", "days": 2}',
        "timeout": "5m",
        "version": version,
    }
    change |= {"overlap": "skip", "misfire": "latest", "more": '{"crash_attempts": 5}', "owner": "<b>ann</b>"}
    shown = send(client, "/jobs/made.here/edit", change)
    assert "This would change" in Document(shown.text).text
    assert "&lt;b&gt;ann" in shown.text
    assert send(client, "/jobs/made.here/edit", {**change, "do": "save"}).status_code == 303
    late = send(client, "/jobs/made.here/edit", {**change, "timeout": "6m", "do": "save"})
    assert late.status_code == 412
    assert "has been changed since you read it" in late.text
    job = client.get("/api/v1/jobs/made.here").json()
    assert (job["timeout"], job["crash_attempts"], job["tags"]) == (300, 5, [])
    assert "crash_attempts" in page(client, "/jobs/made.here").text
    assert send(client, "/jobs/made.here/remove", {"version": version}).status_code == 412
    gone = {"version": job["fingerprint"], "note": "not needed"}
    assert send(client, "/jobs/made.here/remove", gone).status_code == 303
    assert client.get("/api/v1/jobs/made.here").status_code == 404


def test_an_operator_defines_no_job() -> None:
    with service(scheduler(), authorize=lambda request: Caller("operate", "op")) as client:
        for path in ("/define", "/jobs/report/edit", "/jobs/report/remove"):
            assert client.get(path, headers=HTML).status_code == 403
            answer = send(client, path, {"version": "none", "do": "save"})
            assert (answer.status_code, "takes the role admin" in answer.text) == (403, True)
        shown = page(client, "/jobs/report").addresses | page(client, "/jobs").addresses
        assert not [each for each in shown if each.endswith(("/edit", "/remove", "/define"))]


def test_the_search_leads_to_what_is_meant(client: httpx2.Client) -> None:
    key = triggered(client, "report")
    ended(client, key)
    for words, target in (
        ("report", "/jobs/report"),
        ("never", "/jobs/never"),
        ("report 02:30", "/jobs/report?at=02%3A30"),
    ):
        assert client.get("/find", params={"q": words}, headers=HTML).headers["location"] == target
    assert (
        client.get("/find", params={"q": key}, headers=HTML).headers["location"].startswith("/fires/report")
    )
    assert "No job and no fire" in page(client, "/find?q=zzz").text


# --- who may what -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx2.Client]:
    with service(scheduler(auth_token=OPERATE, read_token=READ)) as client:
        yield client


def writes() -> list[str]:
    names = {"id": "report", "key": "nasty!x"}
    return [each.path.format(**names) for each in PAGES if each.act is not None]


@pytest.mark.parametrize("path", writes())
def test_a_reader_changes_nothing_by_any_form(guarded: httpx2.Client, path: str) -> None:
    answer = send(guarded, path, {"do": "pause", "job": "report", "reason": "mischief"}, headers=bearer(READ))
    assert answer.status_code == 403
    assert "takes the role operate" in answer.text
    assert guarded.get(path, params={"do": "pause"}, headers={**HTML, **bearer(READ)}).status_code == 403
    assert guarded.get("/api/v1/jobs/report", headers=bearer(READ)).json()["paused"] is None


def test_a_reader_sees_no_buttons(guarded: httpx2.Client) -> None:
    key = guarded.post("/api/v1/jobs/nasty/trigger", headers=bearer(OPERATE)).json()["key"]
    for path in (
        "/",
        "/jobs",
        "/jobs/report",
        "/fires",
        f"/fires/{key}",
        "/cluster",
        "/audit",
        "/doctor",
        "/load",
    ):
        shown = page(guarded, path, headers=bearer(READ))
        posts = {each["action"] for each in shown.named("form") if each.get("method") == "post"}
        assert posts <= {"/preferences", "/sign-out"}, path
        ends = ("/run", "/pause", "/resume", "/cancel", "/retry", "/bulk", "/define", "/edit", "/remove")
        assert not [each for each in shown.addresses if each.partition("?")[0].endswith(ends)], path
        assert not [
            each
            for each in shown.named("input")
            if each.get("type") == "checkbox" and each["name"] != "planned"
        ]
    assert [
        each
        for each in page(guarded, "/jobs/report", headers=bearer(OPERATE)).addresses
        if each.endswith("/run")
    ]


def test_one_who_sees_some_jobs_sees_no_others() -> None:
    with service(scheduler(), authorize=lambda request: Caller("operate", "team", ("team:*",))) as client:
        for path in ("/", "/jobs", "/jobs?sort=next", "/fires", "/cluster", "/load", "/doctor", "/find?q=e"):
            answer = client.get(path, headers=HTML, follow_redirects=True)
            assert "nasty" not in answer.text, path
            assert "/jobs/report" not in answer.text, path
        page(client, "/jobs/report", 404)
        page(client, "/fires/report!x", 404)
        assert send(client, "/jobs/report/pause").status_code == 404
        assert send(client, "/bulk", {"do": "pause", "job": ["report"]}).status_code == 404
        assert ODD in page(client, "/jobs").text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {},
    ],
)
def test_a_form_of_another_site_is_refused(client: httpx2.Client, headers: dict[str, str]) -> None:
    answer = client.post("/jobs/never/pause", data={"reason": "mischief"}, headers=headers)
    assert answer.status_code == 403
    assert client.get("/api/v1/jobs/never").json()["paused"] is None
    assert (
        client.post("/jobs/never/pause", content=b"{}", headers={"Content-Type": "text/plain"}).status_code
        == 415
    )


# --- where it is mounted ------------------------------------------------------------------------------------------


def check_prefix(client: httpx2.Client) -> None:
    key = client.post("/a/b/api/v1/jobs/report/trigger").json()["key"]
    for path in (
        "/",
        "/jobs",
        "/jobs/report",
        "/jobs/report/run",
        "/fires",
        f"/fires/{quote(key)}",
        "/load",
        "/cluster",
        "/doctor",
    ):
        found = page(client, f"/a/b{path}")
        outside = [each for each in found.addresses if not each.startswith("/a/b/")]
        assert not outside, (path, outside)
    for address in page(client, "/a/b/").addresses:
        if "/preferences" not in address and "/resume" not in address:
            assert client.get(address, headers=HTML).status_code == 200, address
    answer = send(client, "/a/b/jobs/never/pause", {"reason": "x"})
    assert answer.headers["location"] == "/a/b/jobs/never?done=paused"
    liked = send(client, "/a/b/preferences", {"theme": "dark", "next": "/jobs"})
    assert liked.headers["location"] == "/a/b/jobs"
    assert "Path=/a/b" in liked.headers["set-cookie"]


def test_mounted_under_a_prefix() -> None:
    inner = scheduler()
    host = Starlette(routes=[Mount("/a/b", inner.asgi())], lifespan=inner.lifespan)
    with served(host) as url, client_of(url) as client:
        check_prefix(client)


def test_behind_a_proxy_that_keeps_the_prefix_or_cuts_it_off() -> None:
    with served(WebApp(scheduler(), root_path="/a/b")) as url, client_of(url) as client:
        check_prefix(client)
        cut_off = page(client, "/jobs")
        assert all(each.startswith("/a/b/") for each in cut_off.addresses)


def test_a_store_that_does_not_answer_is_a_page_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.errors import StoreUnavailable

    quick = scheduler()
    with service(quick) as client:

        async def lost(*_: object, **__: object) -> None:
            raise StoreUnavailable("the store has gone for a walk")

        monkeypatch.setattr(quick.reader, "shared", lost)
        assert "gone for a walk" in page(client, "/jobs", 503).text


def test_every_job_of_a_second_costs_a_lane_no_more_than_one_of_an_hour() -> None:
    """The picture has columns, not fires."""
    busy = Scheduler("memory://", **QUICK)

    @busy.job(every(seconds=1), id="each-second")
    async def each_second() -> None: ...

    @busy.job(every(hours=1), id="each-hour")
    async def each_hour() -> None: ...

    with service(busy) as client:
        shown = {
            name: len(client.get(f"/?span=30d&q={name}", headers=HTML).text)
            for name in ("each-second", "each-hour")
        }
        assert abs(shown["each-second"] - shown["each-hour"]) < 60_000
