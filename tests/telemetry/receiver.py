"""A receiver of OTLP over HTTP that keeps what it is sent. The wire format is read by OpenTelemetry's own classes."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Linked:
    trace_id: str
    span_id: str
    why: str


@dataclass(frozen=True)
class Received:
    """A span, as it was sent."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent: str
    begun: float
    ended: float
    attributes: dict[str, Any]
    links: list[Linked]
    events: list[tuple[str, dict[str, Any]]]
    status: int
    description: str
    resource: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[f"fencepost.{name}"]


@dataclass
class Receiver:
    port: int = 0
    spans: list[Received] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """By name: the latest."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            asked = ExportTraceServiceRequest.FromString(body)
            for group in asked.resource_spans:
                about = _values(group.resource.attributes)
                self.spans += [_span(each, about) for scope in group.scope_spans for each in scope.spans]
        elif path == "/v1/metrics":
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {each.name: each for scope in group.scope_metrics for each in scope.metrics}


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _span(sent: Any, resource: dict[str, Any]) -> Received:
    return Received(
        sent.name,
        sent.kind,
        sent.trace_id.hex(),
        sent.span_id.hex(),
        sent.parent_span_id.hex(),
        sent.start_time_unix_nano / 1e9,
        sent.end_time_unix_nano / 1e9,
        _values(sent.attributes),
        [
            Linked(
                link.trace_id.hex(), link.span_id.hex(), _values(link.attributes).get("fencepost.link", "")
            )
            for link in sent.links
        ],
        [(event.name, _values(event.attributes)) for event in sent.events],
        sent.status.code,
        sent.status.message,
        resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
