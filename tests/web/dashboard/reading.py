"""Pages as a browser would read them, without one."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx2

HTML = {"Accept": "text/html,*/*"}
VOID = ("meta", "link", "input", "br", "path", "circle", "rect", "line", "use", "img")


class Document(HTMLParser):
    """Elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._hidden = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def addresses(self) -> set[str]:
        links = {each["href"] for name, each in self.elements if name in ("a", "link") and "href" in each}
        forms = {each.get("action", "") for each in self.named("form")}
        scripts = {each.get("src", "") for each in self.named("script")}
        return {each for each in links | forms | scripts if each and not each.startswith("#")}


def page(client: httpx2.Client, path: str, status: int = 200, **options: Any) -> Document:
    answer = client.get(path, headers={**HTML, **options.pop("headers", {})}, **options)
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[-500:]}"
    assert answer.headers["content-type"].startswith("text/html"), answer.headers
    return Document(answer.text)


def send(client: httpx2.Client, path: str, fields: Any = None, **options: Any) -> httpx2.Response:
    """A form, as a browser sends it from a page of the same site."""
    origin = {"Origin": str(client.base_url).rstrip("/")}
    headers = {**HTML, **origin, **options.pop("headers", {})}
    return client.post(path, data=fields or {"x": "y"}, headers=headers, **options)
