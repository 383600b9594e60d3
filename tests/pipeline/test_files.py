"""Downloads and files: complete and checked under their name, or not there."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import hashlib
import json
import os
import threading

import pytest

from fencepost import Retry, RunCancelled, Source
from fencepost.pipeline import written
from fencepost.pipeline.download import Download, DownloadFailed
from tests.pipeline.http_server import Resource

BODY = bytes(range(256)) * 2000
OLD = b"what was there before"
MONDAY = "Mon, 16 Nov 2026 06:00:00 GMT"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data" / "stops.zip"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


def fetch(server, path, attempts=1, tell=lambda **_: None, **options):
    retry = Retry(attempts=attempts, first=0.01, cap=0.02)
    source = Source("stops", f"{server.url}/stops", allow_private=True, timeout=1, retry=retry)
    values = {"sha256": None, "most_bytes": None, **options}
    return Download(source, path, values["sha256"], values["most_bytes"], tell).fetch()


def left_over(path):
    return sorted(each.name for each in path.parent.iterdir() if each != path)


def test_a_download_is_put_in_place_when_it_is_complete(server, path):
    server["/stops"] = Resource(BODY, '"1"', MONDAY)
    seen = []

    def tell(done, total):
        assert path.read_bytes() == OLD
        seen.append((done, total))

    found = fetch(server, path, tell=tell)
    assert (found.etag, found.length) == ('"1"', len(BODY))
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert left_over(path) == []


def test_one_that_is_cut_off_goes_on_from_there(server, path):
    server["/stops"] = Resource(BODY, '"1"', cuts=[100_000, 50_000])
    fetch(server, path, attempts=3)
    assert path.read_bytes() == BODY
    assert [(each.range, each.if_range) for each in server.requests] == [
        (None, None),
        ("bytes=100000-", '"1"'),
        ("bytes=150000-", '"1"'),
    ]


def test_another_process_goes_on_with_the_part(server, path):
    server["/stops"] = Resource(BODY, last_modified=MONDAY, cuts=[100_000])
    with pytest.raises(DownloadFailed):
        fetch(server, path)
    assert path.read_bytes() == OLD
    assert left_over(path) == ["stops.zip.part", "stops.zip.part.json"]
    fetch(server, path)
    assert path.read_bytes() == BODY
    assert server.requests[-1].range == "bytes=100000-"
    assert left_over(path) == []


def test_a_part_of_something_else_is_not_gone_on_with(server, path):
    server["/stops"] = Resource(BODY, '"1"', cuts=[100_000])
    with pytest.raises(DownloadFailed):
        fetch(server, path)
    server["/stops"] = Resource(BODY[::-1], '"2"')
    assert fetch(server, path).etag == '"2"'
    assert path.read_bytes() == BODY[::-1]


def test_a_server_that_sends_a_part_of_something_else_is_noticed(server, path):
    """It ignores the condition, and answers with the rest of another file."""
    server["/stops"] = Resource(BODY, '"1"', cuts=[100_000])
    with pytest.raises(DownloadFailed):
        fetch(server, path)
    server["/stops"] = Resource(BODY[::-1], '"2"', conditions=False)
    fetch(server, path, attempts=2)
    assert [each.range for each in server.requests] == [None, "bytes=100000-", None]
    assert path.read_bytes() == BODY[::-1]


def test_a_server_without_ranges_starts_from_the_beginning(server, path):
    server["/stops"] = Resource(BODY, '"1"', cuts=[100_000], ranges=False)
    fetch(server, path, attempts=2)
    assert path.read_bytes() == BODY


def test_a_server_that_sends_less_than_was_asked_for_is_asked_again(server, path):
    server["/stops"] = Resource(BODY, '"1"', cuts=[100_000], most_per_range=250_000)
    fetch(server, path, attempts=3)
    assert path.read_bytes() == BODY
    assert [each.range for each in server.requests] == [None, "bytes=100000-", "bytes=350000-"]


def test_all_bytes_of_a_part_are_there_but_it_was_not_put_in_place(server, path):
    server["/stops"] = Resource(BODY, '"1"')
    (path.parent / "stops.zip.part").write_bytes(BODY)
    (path.parent / "stops.zip.part.json").write_text(json.dumps({"etag": '"1"', "length": len(BODY)}))
    fetch(server, path)
    assert path.read_bytes() == BODY
    assert server.requests[-1].range == f"bytes={len(BODY) - 1}-"


@pytest.mark.parametrize(
    ("resource", "options", "why"),
    [
        (Resource(BODY, '"1"', claimed_length=len(BODY) + 10), {}, "no such rest"),
        (Resource(BODY, '"1"'), {"sha256": "0" * 64}, "sha256 is another"),
        (Resource(BODY, '"1"'), {"most_bytes": 1000}, "more than"),
        (Resource(BODY, with_length=False), {}, "cannot be distinguished from a cut"),
        (Resource(BODY, status=404), {}, "404"),
        (Resource(BODY, '"1"', cuts=[5, 5, 5, 5]), {}, "RemoteProtocolError"),
    ],
    ids=["longer than sent", "checksum", "too long", "no end", "not there", "cut again and again"],
)
def test_what_is_wrong_is_never_seen_under_its_name(server, path, resource, options, why):
    server["/stops"] = resource
    with pytest.raises(DownloadFailed, match=why):
        fetch(server, path, attempts=2, **options)
    assert path.read_bytes() == OLD


def test_a_checksum_is_enough_where_the_end_is_not_told(server, path):
    server["/stops"] = Resource(BODY, with_length=False)
    fetch(server, path, sha256=hashlib.sha256(BODY).hexdigest().upper())
    assert path.read_bytes() == BODY


def test_a_run_that_was_ended_puts_nothing_in_place(server, path):
    server["/stops"] = Resource(BODY, '"1"')

    def tell(done, total):
        if done == total:
            raise RunCancelled("it was cancelled")

    with pytest.raises(RunCancelled):
        fetch(server, path, tell=tell)
    assert path.read_bytes() == OLD


def test_two_at_once_do_not_write_to_one_part(server, path):
    """A run that was fenced out may still be at it."""
    server["/stops"] = Resource(BODY, '"1"')
    half_way, go_on = threading.Event(), threading.Event()

    def slowly(done, total):
        half_way.set()
        assert go_on.wait(30)

    first = threading.Thread(target=fetch, args=(server, path), kwargs={"tell": slowly})
    first.start()
    assert half_way.wait(30)
    fetch(server, path)
    assert path.read_bytes() == BODY
    inode = os.stat(path).st_ino
    go_on.set()
    first.join()
    assert path.read_bytes() == BODY
    assert os.stat(path).st_ino != inode
    assert left_over(path) == []


def test_a_file_is_written_aside(tmp_path):
    path = tmp_path / "new" / "matches.json"
    with written(path, "w") as file:
        file.write("one")
        assert not path.exists()
    assert path.read_text() == "one"

    def half_way():
        with written(path, "w") as file:
            file.write("tw")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        half_way()
    assert path.read_text() == "one"
    assert left_over(path) == []
