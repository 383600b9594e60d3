"""Downloads that resume: a source on its way into a file that appears when it is complete and checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fencepost.errors import FencepostError
from fencepost.pipeline.files import Part
from fencepost.pipeline.http import (
    GIVES_UP,
    Failed,
    answer,
    content_range,
    described,
    failed,
    persistently,
    validators,
)
from fencepost.pipeline.source import Source, Validators

if TYPE_CHECKING:
    import httpx2

MOST_BYTES = 1 << 34
"""Of a download, unless it says otherwise: 16 GB."""

Report = Callable[..., None]


class DownloadFailed(FencepostError):
    """Nothing was put in place."""


class Download:
    """A source on its way into a file. Bytes gather in `<name>.part`; `<name>.part.json` says of what they are a part.
    If it is cut off, in this process or another, the next one goes on from there: if it is still the same."""

    def __init__(
        self, source: Source, path: Path, sha256: str | None, most_bytes: int | None, report: Report
    ) -> None:
        self.source = source
        self.path = path
        self.sha256 = sha256.lower() if sha256 else None
        self.most_bytes = most_bytes or MOST_BYTES
        self.report = report

    def fetch(self) -> Validators:
        """Blocking; what its server says of the bytes that are now there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with Part.beside(self.path) as part:
            try:
                found = persistently(self.source, lambda: self._attempt(part))
            except GIVES_UP as error:
                raise DownloadFailed(f"source {self.source.name}: {described(error)}") from error
            self.report(done=part.size, total=part.size)  # raises if the run was ended: others may be at work
            part.move_to(self.path)
        return found

    def _attempt(self, part: Part) -> Validators:
        with answer(self.source, part.ask_for_the_rest()) as response:
            if response.status_code == 416:
                self._give_up(part, "there is no such rest as was asked for", transient=True)
            if response.status_code not in (200, 206):
                raise failed(response)
            found = validators(response)
            self._begin(part, response, found)
            self._receive(part, response, found.length)
        self._check(part, found.length)
        return found

    def _begin(self, part: Part, response: httpx2.Response, found: Validators) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Failed("the server encodes what was asked for as it is", transient=False)
        bounded = found.length is not None or "transfer-encoding" in response.headers
        if not bounded and self.sha256 is None:
            raise Failed(
                "a complete body cannot be distinguished from a cut one; give its sha256", transient=False
            )
        if found.length is not None and found.length > self.most_bytes:
            raise Failed(f"{found.length} bytes, more than the {self.most_bytes} allowed", transient=False)
        if response.status_code == 200:
            part.restart(found)
        elif (content_range(response) or (None,))[0] != part.size or not part.continues_with(found):
            part.restart(Validators())
            raise Failed("the server sends another part than was asked for", transient=True)

    def _receive(self, part: Part, response: httpx2.Response, length: int | None) -> None:
        for piece in response.iter_raw():
            part.append(piece)
            self.report(done=part.size, total=length)
            if part.size > (limit := self.most_bytes if length is None else length):
                self._give_up(part, f"more than {limit} bytes", transient=False)

    def _check(self, part: Part, length: int | None) -> None:
        if length is not None and part.size != length:
            raise Failed(f"{part.size} bytes arrived, not {length}", transient=True)
        if self.sha256 is not None and part.sha256() != self.sha256:
            self._give_up(part, "its sha256 is another than it should be", transient=True)

    def _give_up(self, part: Part, why: str, transient: bool) -> NoReturn:
        part.restart(Validators())
        raise Failed(why, transient)
