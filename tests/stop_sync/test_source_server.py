"""The source server: validators, ranges, and everything that goes wrong."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from email.message import Message
from typing import NamedTuple

import pytest

from stop_sync.data import World, gtfs_zip, osm_xml, register_zip, truth, truth_json
from stop_sync.source_server import MOST_CONNECTIONS, SourceServer
from tests.stop_sync.conftest import STOPS, environment
from tests.unit.apps.waiting import eventually

MAKERS = {"register": register_zip, "gtfs": gtfs_zip, "osm": osm_xml}


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes
    url: str = ""


def get(url, **headers):
    """Redirects are followed; an answer that is an error is an answer."""
    request = urllib.request.Request(
        url, headers={name.replace("_", "-"): each for name, each in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return Answer(answer.status, answer.headers, answer.read(), answer.url)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def post(url, value, kind="application/json"):
    request = urllib.request.Request(url, data=json.dumps(value).encode(), headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("source", MAKERS)
def test_a_source_is_served_with_validators(server, source):
    answer = get(server.url(source))
    assert (answer.status, answer.body) == (200, MAKERS[source](World(5, STOPS)))
    assert answer.headers["ETag"].startswith('"')
    assert answer.headers["Last-Modified"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert f'filename="{source}-v1.' in answer.headers["Content-Disposition"]


def test_a_permanent_link_leads_to_the_file_of_the_version(server):
    assert get(server.url("register")).url == f"{server.root}/files/register-v1.zip"
    server.switch("register", version=2)
    assert get(server.url("register")).url == f"{server.root}/files/register-v2.zip"
    assert get(f"{server.root}/files/register-v1.zip").status == 404


def test_a_new_version_has_other_validators_and_other_sources_keep_theirs(server):
    before = {source: get(server.url(source)) for source in MAKERS}
    server.switch("gtfs", version=2)
    after = {source: get(server.url(source)) for source in MAKERS}
    for name in ("ETag", "Last-Modified"):
        changed = {source for source in MAKERS if before[source].headers[name] != after[source].headers[name]}
        assert changed == {"gtfs"}
    assert after["gtfs"].body == gtfs_zip(World(5, STOPS, version=2))


def test_a_probe_gets_one_byte_and_the_validators_of_the_whole(server):
    whole = get(server.url("register"))
    probe = get(server.url("register"), Range="bytes=0-0")
    assert (probe.status, probe.body) == (206, whole.body[:1])
    assert probe.headers["Content-Range"] == f"bytes 0-0/{len(whole.body)}"
    assert probe.headers["ETag"] == whole.headers["ETag"]


def test_the_rest_can_be_asked_for(server):
    whole = get(server.url("osm"))
    rest = get(server.url("osm"), Range="bytes=1000-", If_Range=whole.headers["ETag"])
    assert (rest.status, rest.body) == (206, whole.body[1000:])


def test_the_rest_of_something_else_is_the_whole(server):
    etag = get(server.url("osm")).headers["ETag"]
    server.switch("osm", version=2)
    answer = get(server.url("osm"), Range="bytes=1000-", If_Range=etag)
    assert (answer.status, answer.body) == (200, osm_xml(World(5, STOPS, version=2)))


@pytest.mark.parametrize("wanted", ["bytes=5-2", "bytes=999999999-"])
def test_a_rest_that_is_not_there(server, wanted):
    answer = get(server.url("osm"), Range=wanted)
    assert answer.status == 416
    assert answer.headers["Content-Range"] == f"bytes */{len(osm_xml(World(5, STOPS)))}"


@pytest.mark.parametrize("status", [502, 504])
def test_so_many_answers_fail_and_the_next_one_does_not(server, status):
    server.switch("osm", failures=2, status=status)
    assert [get(server.url("osm")).status for _ in range(3)] == [status, status, 200]
    assert get(server.url("register")).status == 200


def test_a_download_is_cut_off_and_can_be_resumed(server):
    whole = get(server.url("osm"))
    server.switch("osm", cuts=1)
    assert get(server.url("osm"), Range="bytes=0-0").status == 206  # a probe is left alone
    with pytest.raises(http.client.IncompleteRead) as cut:
        get(server.url("osm"))
    part = cut.value.partial
    assert part == whole.body[: len(whole.body) // 2]
    rest = get(server.url("osm"), Range=f"bytes={len(part)}-", If_Range=whole.headers["ETag"])
    assert part + rest.body == whole.body


def test_a_slow_answer_takes_its_time(server):
    server.switch("osm", slow_seconds=0.5)
    begun = time.monotonic()
    answer = get(server.url("osm"))
    assert time.monotonic() - begun >= 0.45
    assert answer.status == 200


async def test_a_slow_answer_does_not_hold_up_the_end():
    with SourceServer(seed=5, stops=STOPS) as server:
        server.switch("osm", slow_seconds=60)
        waiting = http.client.HTTPConnection(server.root.removeprefix("http://"), timeout=5)
        waiting.request("GET", "/osm.xml")
        await eventually(lambda: server.asked)
    with closing(waiting):
        assert waiting.getresponse().status == 200


def test_switches_from_outside(server):
    status, told = post(f"{server.root}/switch/register", {"version": 3})
    assert (status, told["version"]) == (200, 3)
    assert json.loads(get(server.root).body)["register"]["version"] == 3
    assert get(server.url("register")).url.endswith("register-v3.zip")


@pytest.mark.parametrize(
    ("path", "value", "kind", "status"),
    [
        ("/switch/nothing", {"version": 2}, "application/json", 400),
        ("/switch/register", {"version": 0}, "application/json", 400),
        ("/switch/register", {"version": True}, "application/json", 400),
        ("/switch/register", {"failures": "many"}, "application/json", 400),
        ("/switch/register", {"status": 200}, "application/json", 400),
        ("/switch/register", {"slow_seconds": 1e9}, "application/json", 400),
        ("/switch/register", {"colour": 1}, "application/json", 400),
        ("/switch/register", {"source": "osm"}, "application/json", 400),
        ("/switch/register", [1], "application/json", 400),
        ("/switch/register", {"version": "x" * 5000}, "application/json", 413),
        ("/switch/register", {"version": 2}, "text/plain", 404),
        ("/register", {"version": 2}, "application/json", 404),
    ],
)
def test_a_switch_that_makes_no_sense_is_refused(server, path, value, kind, status):
    assert post(f"{server.root}{path}", value, kind)[0] == status
    assert get(server.url("register")).url.endswith("register-v1.zip")


def test_the_truth_is_that_of_the_versions_served(server):
    server.switch("register", version=2)
    known = truth_json(truth(World(5, STOPS, version=2), World(5, STOPS)))
    assert get(f"{server.root}/truth.json").body == known


def test_requests_are_remembered(server):
    get(server.url("register"), Range="bytes=0-0")
    assert [(each.path, each.range, each.status) for each in server.asked] == [
        ("/permalink/register", "bytes=0-0", 302),
        ("/files/register-v1.zip", "bytes=0-0", 206),
    ]


def test_connections_beyond_the_limit_are_closed():
    with SourceServer(seed=5, stops=STOPS) as server, ExitStack() as waiting:
        server.switch("osm", slow_seconds=60)
        for _ in range(MOST_CONNECTIONS):
            connection = http.client.HTTPConnection(server.root.removeprefix("http://"), timeout=5)
            waiting.enter_context(closing(connection)).request("GET", "/osm.xml")
        with pytest.raises((http.client.HTTPException, OSError)):
            get(server.root)


def test_as_a_program():
    command = [sys.executable, "-m", "stop_sync.source_server", "--port", "0", "--stops", "40"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name, url = process.stdout.readline().split()
            assert (name, get(url).status) == ("register", 200)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()


def test_a_held_source_answers_when_it_is_released(server):
    with ThreadPoolExecutor(1) as pool:
        with server.hold("osm"):
            waiting = pool.submit(get, server.url("osm"))
            assert get(server.url("gtfs")).status == 200
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
        assert waiting.result(5).status == 200
