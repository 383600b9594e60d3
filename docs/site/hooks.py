"""Links of a page that lead out of docs/ (to examples, to the Dockerfile) lead to the repository on the site."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\()(\.\.[^)#\s]*)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: object) -> str:
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def absolute(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target.startswith("docs/") or target == "docs":
            return link[0]
        return f"{link[1]}{config.repo_url}/blob/main/{target}"

    return LINK.sub(absolute, markdown)
