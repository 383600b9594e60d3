"""JSON answers made, and compressed, once for all requests for the same within a second."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from fencepost.insight.views.shapes import Shape
from fencepost.model.values import json_text
from fencepost.web.compression import LEVEL, SHORTEST, accepts_gzip

CLOCKS = ("now", "renewed_at", "as_of", "age_seconds")


class Prepared:
    """`head` with a list of texts under `name`. Times that pass by themselves count as no change: the tag is weak."""

    def __init__(
        self, head: Shape, name: str = "", texts: Iterable[bytes] = (), version: str | None = None
    ) -> None:
        """`version`: of what a change must name (`If-Match`); the tag begins with it."""
        items = b",".join(texts)
        lasting = hashlib.sha256(json_text(_without_clocks(head)).encode())
        lasting.update(items)  # without the interpreter lock, which joining megabytes would hold
        self.etag = f'W/"{f"{version}." if version else ""}{lasting.hexdigest()[:32]}"'
        self.body = json_text(head).encode()
        if name:
            self.body = b'%s,"%s":[%s]}' % (self.body[:-1], name.encode(), items)

    @cached_property
    def zipped(self) -> bytes | None:
        """None: it is too short to compress."""
        return gzip.compress(self.body, LEVEL, mtime=0) if len(self.body) >= SHORTEST else None

    def compressed(self) -> Prepared:
        """Now, and not on the loop of the server that first sends it: jobs may run there."""
        _ = self.zipped
        return self

    def response(self, request: Request) -> Response:
        headers = {"ETag": self.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
        if is_known(request, self.etag):
            return Response(status_code=304, headers=headers)
        body = self.body
        if accepts_gzip(request.scope) and self.zipped is not None:
            body, headers["Content-Encoding"] = self.zipped, "gzip"
        return Response(body, headers=headers, media_type="application/json")


def _without_clocks(shape: Shape) -> Shape:
    """Without the store's time, and when it last heard of each replica."""
    lasting = {name: value for name, value in shape.items() if name not in CLOCKS}
    for name in lasting.keys() & {"replicas", "items"}:
        lasting[name] = [_without_clocks(each) for each in lasting[name]]
    return lasting


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has what it would get. `If-None-Match` may be a list, and compares weakly: with or without
    `W/`, which proxies that compress add."""
    given = ",".join(request.headers.getlist("if-none-match"))
    known = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in known or etag.removeprefix("W/") in known
