"""`fencepost serve --tls-cert --tls-key`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from fencepost import ConfigurationError, Settings
from fencepost.web.connections import OpenConnections, protocol_in
from fencepost.web.tls import tls_context, tls_protocol_in
from tests.servers.certificates import certificate
from tests.web.sample import sample
from tests.web.serving import STARTING, client_of, eventually, served, server_process
from tests.web.test_connections import connected, is_closed
from tests.web.test_serve import SERVE, settings

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


def trusting(found: dict[str, Any]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=found["tls_cert"])


def shown_certificate(url: str) -> str:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return ssl.get_server_certificate((parts.hostname, parts.port))


def test_idle_connections_before_the_handshake_make_way_too(tmp_path: Path) -> None:
    found = certificate(tmp_path)
    room, context = OpenConnections(5), tls_context(Settings.load(env={}, **found))
    assert context is not None
    http = tls_protocol_in(room, protocol_in(room), context)
    with served(sample().asgi(), http=http) as url, connected(url, 20) as idle:
        eventually(lambda: sum(map(is_closed, idle)) >= 15)
        with client_of(url.replace("http", "https"), verify=trusting(found)) as client:
            assert client.get("/livez").status_code == 200
            assert client.get("/api/v1/status").status_code == 200
            key = client.post("/api/v1/jobs/report/trigger", json={"args": {"region": "x" * 60_000}}).json()
            assert len(key["args"]["region"]) == 60_000
        eventually(lambda: sum(map(is_closed, idle)) >= 16)


def test_a_handshake_must_be_made_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.web.tls.HEADERS_WITHIN", 0.2)
    room, context = OpenConnections(5), tls_context(Settings.load(env={}, **certificate(tmp_path)))
    assert context is not None
    http = tls_protocol_in(room, protocol_in(room), context)
    for said in (b"", b"GET /livez HTTP/1.1\r\n\r\n"):
        with served(sample().asgi(), http=http) as url, connected(url, 1, said) as [client]:
            eventually(lambda client=client: is_closed(client), 3)  # type: ignore[misc]
            eventually(lambda: not room._here)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tls_cert": "cert.pem"}, "belong together"),
        ({"tls_key": "key.pem"}, "belong together"),
        ({"tls_cert": "nothing.pem", "tls_key": "key.pem"}, "No such file"),
        ({"tls_cert": "key.pem", "tls_key": "cert.pem"}, "both as PEM"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    certificate(tmp_path)
    with pytest.raises(ConfigurationError, match=problem):
        tls_context(Settings.load(env={}, **given))


@pytest.mark.cluster
def test_serve_speaks_https_and_reads_a_renewed_certificate_at_sighup(tmp_path: Path) -> None:
    first = certificate(tmp_path)
    command = [*SERVE, "--tls-cert", first["tls_cert"], "--tls-key", first["tls_key"]]
    with server_process(command, tmp_path, **settings(tmp_path)) as process:
        url = process.url.replace("http", "https")

        def answers() -> bool:
            try:
                with client_of(url, verify=trusting(first)) as client:
                    return client.get("/livez").status_code == 200
            except httpx2.TransportError:
                return False

        eventually(answers, STARTING)
        before = shown_certificate(url)
        certificate(tmp_path)
        os.kill(process.popen.pid, signal.SIGHUP)
        eventually(lambda: shown_certificate(url) != before, STARTING)
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(100)
        process.terminate()
        assert process.ended() == 0
    assert "https://127.0.0.1" in process.told()
    assert "Traceback" not in process.told()
