"""Webhooks: signed, bounded, and without a secret in any text."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.notify import http, verify, webhook
from tests.notify.receivers import Receiver, Reply, Request, running, signed_by
from tests.notify.samples import AT, notice
from tests.servers.certificates import certificate

SECRET = "correct-horse-battery-staple"
FIELDS = {"id", "cause", "job_id", "fire", "state", "reason", "error", "at", "count"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running(Receiver()) as started:
        yield started


def answering(receiver: Receiver, status: int, body: bytes = b"", **headers: str) -> None:
    receiver.answer = lambda _: Reply(
        status, body, {name.replace("_", "-"): text for name, text in headers.items()}
    )


async def refusal(receiver: Receiver, status: int, body: bytes = b"", **headers: str) -> DeliveryFailed:
    answering(receiver, status, body, **headers)
    with pytest.raises(DeliveryFailed) as caught:
        await webhook(f"{receiver.url}/hooks/T0P/s3cr3t-path?key=v3ry", secret=SECRET).deliver([notice()])
    return caught.value


async def test_a_notice_is_a_signed_post(receiver: Receiver) -> None:
    await webhook(f"{receiver.url}/hook?a=b", secret=SECRET).deliver([notice()])
    [request] = receiver.requests
    assert request.path == "/hook?a=b"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["fencepost-id"] == "n-failed"
    assert request.json.keys() == FIELDS
    assert request.json["at"] == "2026-11-17T02:31:04.000000Z"
    assert request.json["error"] == "ValueError: no rows"
    assert signed_by(request, SECRET, datetime.now(UTC))
    assert not signed_by(request, "another", datetime.now(UTC))


async def test_receivers_verify_with_the_helper(receiver: Receiver) -> None:
    await webhook(receiver.url, secret=SECRET).deliver([notice(error="Grüße\u2028")])
    [request] = receiver.requests
    header = request.headers["fencepost-signature"]
    stamp = datetime.fromtimestamp(int(header.split(",")[0][2:]), UTC)

    class Late:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def wall(self) -> datetime:
            return stamp + timedelta(seconds=self.seconds)

        def steady(self) -> float:
            return 0.0

    assert verify(request.body, header, SECRET)
    assert verify(request.body, header, SECRET, "5m", clock=Late(300))
    assert not verify(request.body, header, SECRET, "5m", clock=Late(301))
    assert not verify(request.body, header, SECRET, "5m", clock=Late(-301))
    assert not verify(request.body + b" ", header, SECRET)
    assert not verify(request.body, header, "another")
    assert not verify(request.body, header.replace("t=1", "t=2"), SECRET, "36500d")
    assert verify(request.body, header.replace("v1=", f"v1={'0' * 64},v1="), SECRET)
    for broken in ("", None, "v1=", "t=1", header.upper(), f"{header},", "t=x,v1=" + "0" * 64):
        assert not verify(request.body, broken, SECRET)
    with pytest.raises(ConfigurationError, match="secret"):
        verify(request.body, header, "")


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    await webhook(receiver.url).deliver([notice()])
    assert "fencepost-signature" not in receiver.requests[0].headers


async def test_a_digest_is_one_post_that_is_the_same_when_repeated(receiver: Receiver) -> None:
    many = [notice(id=f"n-{number}") for number in range(150)]
    channel = webhook(receiver.url, secret=SECRET)
    await channel.deliver(many)
    await channel.deliver(many)
    assert [request.json["count"] for request in receiver.requests] == [100, 50, 100, 50]
    first, _, again, _ = receiver.requests
    assert first.headers["fencepost-id"] == again.headers["fencepost-id"] == first.json["id"]
    assert first.json["cause"] == "digest"
    assert first.json.keys() == FIELDS | {"notices"}
    assert [each["id"] for each in first.json["notices"]] == [f"n-{number}" for number in range(100)]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_notice_that_is_refused_is_not_sent_again(receiver: Receiver, status: int) -> None:
    assert (await refusal(receiver, status)).permanent


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 408, 410, 429, 500, 503])
async def test_what_time_or_a_person_may_correct_is_tried_again(receiver: Receiver, status: int) -> None:
    assert not (await refusal(receiver, status)).permanent


async def test_a_receiver_says_when_to_come_back(receiver: Receiver) -> None:
    assert (await refusal(receiver, 429, Retry_After="7")).retry_after == 7
    assert (await refusal(receiver, 503, Retry_After="99999999")).retry_after == 3600
    assert (await refusal(receiver, 503, Retry_After="soon")).retry_after is None
    later = datetime.now(UTC) + timedelta(seconds=90)
    said = (await refusal(receiver, 503, Retry_After=f"{later:%a, %d %b %Y %H:%M:%S} GMT")).retry_after
    assert said is not None
    assert 80 <= said <= 91


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with running(Receiver()) as other:
        error = await refusal(receiver, 307, Location=f"{other.url}/elsewhere")
        assert other.requests == []
    assert "redirect" in error.reason
    assert len(receiver.requests) == 1


async def test_no_text_shows_the_address_or_the_secret(receiver: Receiver) -> None:
    channel = webhook(f"{receiver.url}/hooks/T0P/s3cr3t-path?key=v3ry-long", secret=SECRET, name="ops")

    def echo(request: Request) -> Reply:
        return Reply(500, f"no route for {request.path} {SECRET}\x1b[31m\r\nX: y".encode())

    receiver.answer = echo
    with pytest.raises(DeliveryFailed) as caught:
        await channel.deliver([notice()])
    for text in (caught.value.reason, repr(caught.value), repr(channel), str(channel)):
        assert "s3cr3t" not in text
        assert "v3ry" not in text
        assert SECRET not in text
        assert "\x1b" not in text
        assert "\n" not in text
    assert caught.value.__cause__ is None
    assert "127.0.0.1 answers 500: no route for" in caught.value.reason


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "https://", "https:///x", "https://user:pw-123@host/", "https://host/#x", "https://host/ä",
     "https://host/a b", "https://host:99999/", "host/x", None, "https://host/\r\nHost: x"],
)  # fmt: skip
def test_a_wrong_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        webhook(url)
    assert "pw-123" not in str(caught.value)
    assert "url" in str(caught.value)


async def test_a_receiver_that_is_down_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(DeliveryFailed, match="127.0.0.1 cannot be reached: Connection refused") as caught:
        await webhook(f"http://127.0.0.1:{port}/secret").deliver([notice()])
    assert not caught.value.permanent


@contextmanager
def trickling(beginning: bytes) -> Iterator[tuple[int, threading.Event]]:
    """Answers a byte now and then, for ever. The event is set when the client has hung up."""
    gone = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(beginning)
            try:
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.02)
            except OSError:
                gone.set()

    with closing(listening):
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], gone


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n",
    ],
)
async def test_a_receiver_that_never_ends_costs_neither_time_nor_a_thread(beginning: bytes) -> None:
    with trickling(beginning) as (port, gone):
        with pytest.raises(DeliveryFailed, match="no answer within 0.3 s"):
            await webhook(f"http://127.0.0.1:{port}/", timeout=0.3).deliver([notice()])
        assert gone.wait(10), "the connection was left open"


async def test_an_answer_that_is_no_http_is_a_failure() -> None:
    with (
        trickling(b"220 smtp.example.com ESMTP\r\n") as (port, _),
        pytest.raises(DeliveryFailed, match="cannot be reached: BadStatusLine"),
    ):
        await webhook(f"http://127.0.0.1:{port}/").deliver([notice()])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")
async def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = certificate(tmp_path)
    http.certificates.cache_clear()
    with running(Receiver().with_tls(found["tls_cert"], found["tls_key"])) as receiver:
        address = receiver.url.replace("http", "https")
        with pytest.raises(DeliveryFailed, match="cannot be reached: self-signed certificate"):
            await webhook(address).deliver([notice()])
        monkeypatch.setenv("SSL_CERT_FILE", found["tls_cert"])
        http.certificates.cache_clear()
        await webhook(address).deliver([notice()])
        with pytest.raises(DeliveryFailed, match="mismatch"):
            await webhook(address.replace("127.0.0.1", "localhost")).deliver([notice()])
    http.certificates.cache_clear()
    assert len(receiver.requests) == 1


async def test_an_error_is_shortened(receiver: Receiver) -> None:
    await webhook(receiver.url).deliver([notice(error="x" * 1_000_000, at=AT)])
    assert len(receiver.requests[0].body) < 5_000
    assert json.loads(receiver.requests[0].body)["error"].startswith("xxx")


async def test_a_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = receiver.url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://ops:pa%40ss@{place}")
    monkeypatch.setenv("https_proxy", f"http://ops:pa%40ss@{place}")
    monkeypatch.setenv("no_proxy", "inside.test")
    await webhook("http://receiver.test:81/hook?a=b").deliver([notice()])
    [request] = receiver.requests
    assert request.path == "http://receiver.test:81/hook?a=b"
    assert request.headers["host"] == "receiver.test:81"
    assert request.headers["proxy-authorization"] == "Basic b3BzOnBhQHNz"
    with pytest.raises(DeliveryFailed, match="receiver.test cannot be reached: the proxy refuses: .* 501"):
        await webhook("https://receiver.test/hook").deliver([notice()])
    with pytest.raises(DeliveryFailed, match="inside.test cannot be reached"):
        await webhook("http://inside.test/", timeout=5).deliver([notice()])
    await webhook(receiver.url).deliver([notice()])  # this machine: directly
    assert [each.path for each in receiver.requests[1:]] == ["/"]
