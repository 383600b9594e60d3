"""Real receivers on this machine: HTTP, and fakes of Sentry and Healthchecks that refuse what the real ones refuse.

They share no code with the channels: signatures, envelopes and pings are read here a second time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID
from zoneinfo import available_timezones

from cronsim import CronSim


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    """Their names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)


class Receiver:
    """Answers each POST by a function, and keeps all of them."""

    def __init__(self, answer: Callable[[Request], Reply] | None = None, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.answer = answer or (lambda _: Reply())
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, body)
                receiver.requests.append(request)
                reply = receiver.answer(request)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def do_GET(self) -> None:
                receiver.requests.append(Request(self.path, {}, b""))
                self.send_error(405)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def with_tls(self, certificate: str, key: str) -> Receiver:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return self

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Receiver:
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


@contextmanager
def running(receiver: Receiver) -> Iterator[Receiver]:
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


# --- signatures ---------------------------------------------------------------------------------------------


def signed_by(request: Request, secret: str, now: datetime, seconds: float = 300) -> bool:
    """Verified by hand, as a receiver in any language would."""
    parts = [part.split("=", 1) for part in request.headers["fencepost-signature"].split(",")]
    assert [name for name, _ in parts] == ["t", "v1"]
    stamp, given = parts[0][1], parts[1][1]
    expected = hmac.digest(secret.encode(), stamp.encode() + b"." + request.body, hashlib.sha256).hex()
    return given == expected and abs(now.timestamp() - int(stamp)) <= seconds


# --- Sentry -------------------------------------------------------------------------------------------------


class FakeSentry:
    """The envelope endpoint, for check-ins: 403 for a wrong key, 400 for what its parser refuses. Behind it, as in
    Sentry, a check-in without a monitor is dropped, a second final status of a check-in too, and a monitor is made
    from `monitor_config`."""

    def __init__(self, key: str, project: str = "42", port: int = 0) -> None:
        self.key, self.project = key, project
        self.monitors: dict[str, dict[str, Any]] = {}
        self.check_ins: dict[str, dict[str, Any]] = {}
        self.statuses: dict[str, list[str]] = {}
        self.dropped: list[str] = []
        self.receiver = Receiver(self._answer, port)

    @property
    def dsn(self) -> str:
        return f"http://{self.key}@127.0.0.1:{self.receiver.port}/{self.project}"

    def _answer(self, request: Request) -> Reply:
        try:
            self._check_head(request)
            for check_in in _check_ins(request.body):
                self._take(check_in)
        except PermissionError as error:
            return Reply(403, json.dumps({"detail": str(error)}).encode())
        except (ValueError, KeyError, TypeError) as error:
            return Reply(400, json.dumps({"detail": f"invalid envelope: {error}"}).encode())
        return Reply(200, b"{}")

    def _check_head(self, request: Request) -> None:
        if request.path != f"/api/{self.project}/envelope/":
            raise PermissionError("no such project")
        if request.headers.get("content-type") != "application/x-sentry-envelope":
            raise ValueError("content type")
        auth = request.headers.get("x-sentry-auth", "")
        found = dict(re.findall(r"(sentry_\w+)=([^,\s]+)", auth))
        if not auth.startswith("Sentry ") or found.get("sentry_version") != "7":
            raise PermissionError("bad sentry DSN: missing or wrong authorization")
        if found.get("sentry_key") != self.key:
            raise PermissionError("bad sentry DSN public key")
        assert re.fullmatch(r"[\w.-]+/[\w.]+", found["sentry_client"])

    def _take(self, check_in: dict[str, Any]) -> None:
        slug, id = check_in["monitor_slug"], check_in["check_in_id"]
        if config := check_in.get("monitor_config"):
            if (problem := _wrong_with(config)) is not None:
                self.dropped.append(f"{slug}: {problem}")
                return
            self.monitors[slug] = config
        if slug not in self.monitors:
            self.dropped.append(f"{slug}: no monitor")
            return
        known = self.check_ins.get(id)
        if known is not None and known["monitor_slug"] != slug:
            self.dropped.append(f"{slug}: the check-in is of another monitor")
            return
        if known is not None and known["status"] != "in_progress":
            self.dropped.append(f"{slug}: the check-in has ended")
            return
        self.check_ins[id] = check_in
        self.statuses.setdefault(id, []).append(check_in["status"])


def _check_ins(envelope: bytes) -> Iterator[dict[str, Any]]:
    """An envelope: a line of JSON, then items, each a line of JSON and as many bytes as that says."""
    head, _, rest = envelope.partition(b"\n")
    sent = json.loads(head)["sent_at"]
    if datetime.fromisoformat(sent).tzinfo is None or not sent.endswith("Z"):
        raise ValueError("sent_at")
    while rest:
        line, _, rest = rest.partition(b"\n")
        item = json.loads(line)
        length = item["length"]
        payload, rest = rest[:length], rest[length:]
        if len(payload) != length or rest[:1] not in (b"\n", b""):
            raise ValueError("the length of an item")
        rest = rest[1:]
        if item["type"] == "check_in":
            yield _checked(json.loads(payload))


def _checked(check_in: dict[str, Any]) -> dict[str, Any]:
    UUID(check_in["check_in_id"])
    if check_in["status"] not in ("in_progress", "ok", "error"):
        raise ValueError("status")  # Sentry would make it `unknown`
    slug = check_in["monitor_slug"]
    if not re.fullmatch(r"(?!\d+$)[a-z0-9_\-]{1,50}", slug):
        raise ValueError("monitor_slug")  # Sentry would change it
    if not re.fullmatch(r"[^\n\r\f/]{1,64}", check_in.get("environment", "production")):
        raise ValueError("environment")
    duration = check_in.get("duration", 0.0)
    if type(duration) not in (int, float) or duration < 0:
        raise ValueError("duration")
    return check_in


def _wrong_with(config: dict[str, Any]) -> str | None:
    schedule = config["schedule"]
    if schedule["type"] == "crontab":
        if len(schedule["value"].split()) != 5:
            return "only 5 field crontab syntax is supported"
        next(CronSim(schedule["value"], datetime(2026, 1, 1)))
        if config.get("timezone", "UTC") not in available_timezones():
            return "timezone"
    elif schedule["type"] == "interval":
        if type(schedule["value"]) is not int or schedule["value"] <= 0:
            return "interval must be greater than zero"
        if schedule["unit"] not in ("year", "month", "week", "day", "hour", "minute"):
            return "unit"
    else:
        return "schedule type"
    for name in ("checkin_margin", "max_runtime"):
        if name in config and not 1 <= config[name] <= 40_320:
            return name
    known = {"schedule", "checkin_margin", "max_runtime", "timezone"}
    return None if config.keys() <= known else "an unknown field"


# --- Healthchecks -------------------------------------------------------------------------------------------

CHECK = "5bf66975-d4c7-4bf5-bcc8-b8d8a82ea278"
PING_KEY = "fqOOd6-F4MMNuCEnzTU01w"


class FakeHealthchecks:
    """The ping API: 404 for an unknown check or key, 400 for a bad address or run id, as the real one answers."""

    def __init__(self, port: int = 0) -> None:
        self.pings: list[tuple[str, str, str, str]] = []
        """The check, what it says, the run's id, the body."""
        self.checks = {CHECK}
        self.receiver = Receiver(self._answer, port)

    def _answer(self, request: Request) -> Reply:
        split = urlsplit(request.path)
        query = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        found = re.fullmatch(
            r"/([0-9a-f-]{36}|[\w-]{22}/[a-z0-9_-]+)(?:/(start|fail|log|\d{1,3}))?", split.path
        )
        if found is None:
            return Reply(400, b"invalid url format")
        check, action = found[1], found[2] or "success"
        if "rid" in query and str(UUID(query["rid"])) != query["rid"]:
            return Reply(400, b"invalid uuid format")
        created = False
        if check not in self.checks:
            if query.get("create") != "1" or not check.startswith(f"{PING_KEY}/"):
                return Reply(404, b"not found")
            self.checks.add(check)
            created = True
        body = request.body.decode("utf-8")
        assert len(request.body) <= 100_000
        self.pings.append((check, action, query.get("rid", ""), body))
        return Reply(201, b"Created") if created else Reply(200, b"OK")
