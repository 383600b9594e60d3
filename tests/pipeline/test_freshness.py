"""The freshness gate against a real server: what runs again, and what is left alone."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fencepost import ConfigurationError, Pipeline, Retry, Source
from fencepost.pipeline import rule
from fencepost.pipeline.addresses import is_public
from fencepost.pipeline.http import ProbeFailed, probe
from fencepost.pipeline.source import Validators, freshness
from tests.pipeline.http_server import HttpServer, Resource

QUICK = Retry(attempts=2, first=0.01, cap=0.02)
MONDAY, TUESDAY = "Mon, 16 Nov 2026 06:00:00 GMT", "Tue, 17 Nov 2026 06:00:00 GMT"


@dataclass
class Stops:
    """A pipeline of two sources, as a register of stops and a timetable are, with its files and tables."""

    server: HttpServer
    folder: Path
    tables: bool = True
    types: list = field(default_factory=list)

    def __post_init__(self):
        self.server["/atlas"] = Resource(b"stops;1", etag='"a1"', last_modified=MONDAY)
        self.server["/gtfs"] = Resource(b"times;1", last_modified=MONDAY)
        self.pipeline = Pipeline(
            "stops",
            modes=("full", "match-import"),
            run_types=("complete", "atlas_cached", "atlas_cached_bootstrap"),
            rules=[
                rule("complete", modes=["match-import"]),
                rule("complete", forced=True),
                rule("complete", changed=True),
                rule("atlas_cached", when=lambda run: self.tables),
                rule("atlas_cached_bootstrap"),
            ],
            sources=[self.source("atlas"), self.source("gtfs")],
        )

        @self.pipeline.phase("download", modes=["full"], run_types=["complete"])
        def download(run):
            for name in ("atlas", "gtfs"):
                run.download(name, self.file(name))

        @self.pipeline.phase("import")
        def import_(run):
            self.types.append(run.run_type)

    def source(self, name):
        url = f"{self.server.url}/{name}?key=secret"
        options = {"timeout": 0.4, "retry": QUICK, "allow_private": True}
        return Source(name, url, artefacts=[self.file(name)], modes=["full"], **options)

    def file(self, name):
        return self.folder / f"{name}.csv"


async def ran(scheduler, **args):
    handle = await scheduler.trigger("stops", args=args or None)
    fire = await handle.wait(timeout=60)
    assert fire.state == "succeeded", fire.error
    return {each["name"]: each for each in fire.progress["pipeline"]["phases"]}


def unchanged(stops): ...


def changed(stops):
    stops.server["/atlas"].body, stops.server["/atlas"].etag = b"stops;2", '"a2"'


def other_changed(stops):
    stops.server["/gtfs"].last_modified = TUESDAY


def probe_failed(stops):
    stops.server["/gtfs"].before_whole = lambda gtfs: setattr(gtfs, "status", 200)
    stops.server["/gtfs"].status = 503


def timed_out(stops):
    stops.server["/gtfs"].before_whole = lambda gtfs: setattr(gtfs, "delay", 0.0)
    stops.server["/gtfs"].delay = 1.0


def validators_missing(stops):
    stops.server["/gtfs"].last_modified = None


def other_length(stops):
    stops.server["/atlas"].body = b"stops;1 and more under the same tag"


def artefact_deleted(stops):
    stops.file("gtfs").unlink()


def artefact_empty(stops):
    stops.file("gtfs").write_text("")


def moved(stops):
    stops.server["/new"] = stops.server["/atlas"]
    stops.server["/atlas"] = Resource(redirect="/new?session=7")


def redirected_elsewhere(stops):
    port = stops.server.port
    stops.server["/gtfs"] = Resource(
        redirect=f"http://localhost:{port}/elsewhere",
        before_whole=lambda gtfs: setattr(gtfs, "redirect", None),
        body=b"times;1",
        last_modified=MONDAY,
    )


def tables_gone(stops):
    stops.tables = False


DECISIONS: list[Any] = [
    # what happened since the last success, arguments, run type, whether it was downloaded, what the probe says
    (unchanged, {}, "atlas_cached", False, "unchanged"),
    (changed, {}, "complete", True, "etag is '\"a2\"'"),
    (other_changed, {}, "complete", True, "last_modified is 'Tue"),
    (probe_failed, {}, "complete", True, "the probe failed: the server answers 503"),
    (timed_out, {}, "complete", True, "the probe failed: ReadTimeout"),
    (validators_missing, {}, "complete", True, "says nothing to compare"),
    (other_length, {}, "complete", True, "its length is"),
    (artefact_deleted, {}, "complete", True, "gtfs.csv is missing or empty"),
    (artefact_empty, {}, "complete", True, "gtfs.csv is missing or empty"),
    (moved, {}, "atlas_cached", False, "unchanged"),
    (redirected_elsewhere, {}, "complete", True, "redirects to localhost, which is not in allow_hosts"),
    (tables_gone, {}, "atlas_cached_bootstrap", False, "unchanged"),
    (unchanged, {"force": True}, "complete", True, "unchanged"),
    (changed, {"mode": "match-import"}, "complete", False, None),
    (probe_failed, {"mode": "match-import"}, "complete", False, None),
]


@pytest.mark.parametrize(
    ("happened", "args", "run_type", "downloaded", "why"),
    DECISIONS,
    ids=[f"{each[0].__name__}-{'-'.join(map(str, each[1].values()))}" for each in DECISIONS],
)
async def test_the_decision_table(
    scheduled, server, tmp_path, happened, args, run_type, downloaded, why, caplog
):
    caplog.set_level(logging.DEBUG)
    stops = Stops(server, tmp_path)
    scheduler = await scheduled(stops.pipeline, "memory://")
    first = await ran(scheduler)
    assert (stops.types, first["download"]["outcome"]) == (["complete"], "done")  # nothing was known before
    happened(stops)
    server.requests.clear()
    phases = await ran(scheduler, **args)
    assert stops.types[-1] == run_type
    full = args.get("mode") != "match-import"
    outcome = ("done" if downloaded else "reused") if full else "skipped"
    assert phases["download"]["outcome"] == outcome
    assert bool(server.wholes("/atlas") or server.wholes("/gtfs")) is downloaded
    assert ("source_probe" in phases) is full
    assert bool(server.requests) is full
    if why is not None:
        newest = (
            await scheduler.ask(scheduler.lifecycle.with_store(lambda store: store.find_fires(all_fires())))
        )[0]
        told = [each["why"] for each in newest.checkpoint["results"]["source_probe"].values()]
        assert any(why in each for each in told), told
        failed = [each for each in told if "failed" in each]
        assert len(phases["source_probe"]["warnings"]) == len(failed)
    assert "secret" not in caplog.text


def all_fires():
    from fencepost.store.base import FireQuery

    return FireQuery(job_id="stops")


async def test_a_source_that_changes_between_probe_and_download(scheduled, server, tmp_path):
    """What is remembered is what was processed: neither is a change overlooked, nor the same bytes fetched twice."""
    stops = Stops(server, tmp_path)
    scheduler = await scheduled(stops.pipeline, "memory://")

    def change(atlas):
        atlas.before_whole = None
        atlas.body, atlas.etag = b"stops;2, while nobody looked", '"a2"'

    server["/atlas"].before_whole = change
    await ran(scheduler)
    assert stops.file("atlas").read_bytes() == b"stops;2, while nobody looked"
    phases = await ran(scheduler)
    assert stops.types == ["complete", "atlas_cached"]
    assert phases["download"]["outcome"] == "reused"


async def test_a_source_that_changes_right_after_the_download_is_fetched_again(scheduled, server, tmp_path):
    stops = Stops(server, tmp_path)
    scheduler = await scheduled(stops.pipeline, "memory://")
    await ran(scheduler)
    changed(stops)
    await ran(scheduler)
    await ran(scheduler)
    assert stops.types == ["complete", "complete", "atlas_cached"]
    assert stops.file("atlas").read_bytes() == b"stops;2"


async def test_a_run_without_download_remembers_what_was_probed_before(scheduled, server, tmp_path):
    server["/atlas"] = Resource(b"1", etag='"1"')
    source = Source("atlas", f"{server.url}/atlas", allow_private=True, retry=QUICK)
    pipeline, seen = Pipeline("stops", sources=[source]), []

    @pipeline.phase("preprocess")
    def preprocess(run):
        seen.append(run.has_changed())
        server["/atlas"].etag = '"2"'  # while a program of its own downloads it
        run.processed("atlas")

    scheduler = await scheduled(pipeline, "memory://")
    for _ in range(3):
        await ran(scheduler)
    assert seen == [True, True, False]


async def test_what_is_fetched_every_time_is_not_probed(scheduled, server, tmp_path):
    server["/map"] = Resource(b"nodes", etag='"1"')
    pipeline = Pipeline(
        "stops", sources=[Source("map", f"{server.url}/map", probe=False, retry=QUICK, allow_private=True)]
    )

    @pipeline.phase("download")
    def download(run):
        run.download("map", tmp_path / "map.osm")

    phases = await ran(await scheduled(pipeline, "memory://"))
    assert list(phases) == ["download"]
    assert [request.range for request in server.requests] == [None]


async def test_what_was_reused_elsewhere_is_done_where_it_is_missing(scheduled, server, tmp_path):
    """The first attempt found its files and left the download out. The second runs where there are none."""
    stops = Stops(server, tmp_path)

    @stops.pipeline.phase("publish")
    def publish(run):
        if run.run_type == "atlas_cached":
            stops.file("atlas").unlink()
            raise ValueError("cut off")

    scheduler = await scheduled(stops.pipeline, "memory://", retry=Retry(attempts=2, first=0.05))
    await ran(scheduler)
    phases = await ran(scheduler)
    assert stops.types == ["complete", "atlas_cached", "complete"]
    assert [each["outcome"] for each in phases.values()] == ["done"] * 4
    assert stops.file("atlas").exists()


async def test_a_failed_run_does_not_remember_what_it_processed(scheduled, server, tmp_path):
    stops, fail = Stops(server, tmp_path), [False]

    @stops.pipeline.phase("publish")
    def publish(run):
        if fail[0]:
            raise ValueError("no space")

    scheduler = await scheduled(stops.pipeline, "memory://")
    await ran(scheduler)
    changed(stops)
    fail[0] = True
    assert (await (await scheduler.trigger("stops")).wait(30)).state == "failed"
    fail[0] = False
    await ran(scheduler)
    assert stops.types == ["complete", "complete", "complete"]


# --- the probe ------------------------------------------------------------------------------------------


def source(server, path="/a", **options):
    return Source(
        "a", f"{server.url}{path}", **{"allow_private": True, "timeout": 0.5, "retry": QUICK, **options}
    )


def test_a_probe_asks_for_one_byte_and_says_all_there_is_to_compare(server):
    server["/a"] = Resource(b"x" * 1000, '"1"', MONDAY, 'attachment; filename="stops-2026.csv"')
    found = probe(source(server, "/a?token=x#y"))
    assert found == Validators('"1"', MONDAY, 1000, "stops-2026.csv", f"{server.url}/a")
    assert [request.range for request in server.requests] == ["bytes=0-0"]
    server["/a"].ranges = False  # a server that knows no ranges is not read to the end
    assert probe(source(server)).length == 1000


def test_redirects_are_followed_within_the_list(server):
    other = f"http://localhost:{server.port}"
    server["/a"] = Resource(redirect=f"{other}/b")
    server["/b"] = Resource(redirect="c")
    server["/c"] = Resource(b"123", '"1"')
    headers = {"Authorization": "Bearer s3cret"}
    found = probe(source(server, allow_hosts=["localhost"], headers=headers))
    assert found.url == f"{other}/c"
    assert [request.host.split(":")[0] for request in server.requests] == [
        "127.0.0.1",
        "localhost",
        "localhost",
    ]
    assert [request.headers.get("Authorization") for request in server.requests] == [
        "Bearer s3cret",
        None,
        None,
    ]
    with pytest.raises(ProbeFailed, match="redirects to localhost, which is not in allow_hosts"):
        probe(source(server))
    server["/a"].redirect = "/a"
    with pytest.raises(ProbeFailed, match="more than 5 times"):
        probe(source(server))
    server["/a"].redirect = "file:///etc/passwd"
    with pytest.raises(ProbeFailed):
        probe(source(server))


def test_another_port_of_the_same_host_gets_no_credentials(server):
    with HttpServer() as other:
        server["/a"] = Resource(redirect=f"{other.url}/b")
        other["/b"] = Resource(redirect=f"{server.url}/c")
        server["/c"] = Resource(b"123", '"1"')
        probe(source(server, headers={"Authorization": "Bearer s3cret"}))
        sent = [request.headers.get("Authorization") for request in (*server.requests, *other.requests)]
        assert sent == ["Bearer s3cret", "Bearer s3cret", None]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.7", "169.254.169.254", "0.0.0.0"]
)
def test_internal_addresses_are_refused_unless_allowed(server, host):
    inside = Source("a", f"http://{host}:{server.port}/a", retry=QUICK)
    with pytest.raises(ProbeFailed, match="internal network; allow_private=True"):
        probe(inside)
    assert server.requests == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("100.64.0.1", False),
        ("192.168.1.1", False),
        ("224.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::808:808", True),
        ("2002:a00:1::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("64:ff9b:1::808:808", False),
        ("fec0::1", False),
        ("3fff::1", False),
        ("::8.8.8.8", False),
        ("::", False),
        ("::1", False),
        ("100::1", False),
        ("100:0:0:1::1", False),
        ("2001:0:808:808::1", False),  # Teredo
        ("2001:20::1", False),
        ("2001:db8::1", False),
        ("2620:4f:8000::1", False),
        ("5f00::1", False),
        ("4000::1", False),
        ("ff02::1", False),
        ("::ffff:8.8.8.8", True),
        ("2002:808:808::1", True),
        ("2001:4860:4860::8888", True),
        *((address, False) for address in ("0.1.2.3", "127.1.2.3", "172.31.0.1", "192.0.0.9", "192.0.2.1")),
        *((address, False) for address in ("192.88.99.1", "198.19.0.1", "203.0.113.1", "255.255.255.255")),
    ],
)
def test_which_addresses_are_public(address, public):
    assert is_public(address) is public


def test_what_may_pass_is_tried_again(server):
    server["/a"] = Resource(b"1", '"1"', fails=1)
    assert probe(source(server)).etag == '"1"'
    server.requests.clear()
    server["/a"].status = 503
    with pytest.raises(ProbeFailed, match="503"):
        probe(source(server))
    assert len(server.requests) == 2
    server["/a"].status = 404
    with pytest.raises(ProbeFailed, match="404"):
        probe(source(server))
    assert len(server.requests) == 3
    with pytest.raises(ProbeFailed, match="ConnectError"):
        probe(Source("a", "http://127.0.0.1:1/", allow_private=True, retry=QUICK))


@pytest.mark.parametrize(
    ("by", "last", "found", "is_changed"),
    [
        (("etag", "last_modified"), Validators('"1"', MONDAY), Validators('"1"', TUESDAY), False),
        (("last_modified",), Validators('"1"', MONDAY), Validators('"1"', TUESDAY), True),
        (("etag", "last_modified"), Validators('"1"', MONDAY), Validators(None, MONDAY), False),
        (("etag",), Validators('"1"', MONDAY), Validators(None, MONDAY), True),
        (("etag",), Validators(length=7), Validators(length=7), True),
        (("etag",), Validators('"1"', length=7), Validators('"1"', length=8), True),
        (("url",), Validators(url="http://a/1"), Validators(url="http://a/1"), False),
        (("file_name",), Validators(file_name="1"), Validators(file_name="2"), True),
    ],
)
def test_the_first_validator_that_both_have_decides(by, last, found, is_changed):
    assert freshness(Source("a", "https://a/", by=by), found, last).changed is is_changed


def test_sources_are_checked():
    for url in ("ftp://a/b", "a/b", "https://"):
        with pytest.raises(ConfigurationError, match="must begin with https"):
            Source("a", url)
    with pytest.raises(ConfigurationError, match="did you mean"):
        Source("a", "https://a/", by=["etags"])
    with pytest.raises(ConfigurationError, match="credentials as headers"):
        Source("a", "https://u:secret@a/")
    assert "secret" not in repr(Source("a", "https://a/?key=secret"))
