"""The status widget: its script, and its first state as HTML for pages that are rendered on the server.

texts.json → style.js → live.js → status.js → element.js     one module, joined in this order by `script`
render.py: a status document as HTML      tag.py: the same for templates      django.py: as a template tag
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from fencepost.web.widget.render import Html, status_html
from fencepost.web.widget.tag import StatusTag

__all__ = ["Html", "StatusTag", "script", "status_html"]

PARTS = ("style.js", "live.js", "status.js", "element.js")


@cache
def script() -> bytes:
    """The module that a browser loads. One file: a page that uses it asks once, and a proxy need pass on one path."""
    folder = resources.files(__name__)
    texts = folder.joinpath("texts.json").read_bytes()
    parts = [folder.joinpath(name).read_bytes() for name in PARTS]
    return b"\n".join([b"const TEXTS = " + texts.strip() + b";\n", *parts])
