"""Requests are found wherever the network cuts the bytes."""

from __future__ import annotations

import struct

import pytest

from tests.servers.framing import framing_for


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


SYNC = message(b"S", b"")
PREPARE = message(b"P", b"s1\0UPDATE a /* tag */\0\0\0") + SYNC
RUN = message(b"B", b"\0s1\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0") + SYNC

STREAMS = {
    "redis": [
        command(b"SET", b"key", b"a\r\n*1\r\n$4\r\nPING\r\n"),
        b"PING\r\n",
        command(b"EVALSHA", b"0" * 40, b"0", bytes(range(256)) * 5),
        command(b"GET", b""),
    ],
    "postgresql": [
        struct.pack("!ii", 8, 80877103),
        struct.pack("!ii", 8 + 12, 196608) + b"user\0me\0\0\0\0\0"[:12],
        message(b"p", b"secret\0"),
        message(b"Q", b"SELECT 1\0"),
        PREPARE,
        RUN,
        message(b"P", b"\0SELECT 2\0\0\0") + RUN[: -len(SYNC)] + message(b"H", b""),
        message(b"d", b"x" * 1000),
        message(b"X", b""),
    ],
}


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
@pytest.mark.parametrize("scheme", STREAMS)
def test_requests_are_found_in_any_pieces(scheme, size):
    stream = b"".join(STREAMS[scheme])
    framing = framing_for(scheme)
    found = [
        request.data for at in range(0, len(stream), size) for request in framing.feed(stream[at : at + size])
    ]
    assert found == STREAMS[scheme]


def test_a_prepared_statement_is_said_when_it_runs_and_not_when_it_is_prepared():
    framing = framing_for("postgresql")
    assert len(framing.feed(STREAMS["postgresql"][1])) == 1
    prepare, first, second = framing.feed(PREPARE + RUN + RUN)
    assert b"tag" not in prepare.said
    assert b"tag" in first.said
    assert b"tag" in second.said
    assert b"tag" not in second.data


def test_what_we_cannot_read_is_a_request_each_time_something_comes():
    assert [request.data for request in framing_for("amqp").feed(b"anything")] == [b"anything"]
