"""What must be right before a version is published.

`python deploy/release_check.py v1.2.3`: the tag, the version and the newest section of CHANGELOG.md agree.
`python deploy/release_check.py --sbom build/sbom.cdx.json`: the list of what the wheel brings along is complete.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BASE = frozenset({"click", "cronsim", "markdown-it-py", "mdurl", "pygments", "rich", "tzdata"})
"""What `pip install fencepost` brings along, and no more."""


def problems(tag: str, version: str, changelog: str) -> list[str]:
    sections = re.findall(r"^## \[([^\]]+)\](.*)$", changelog, re.MULTILINE)
    released = [(name, rest) for name, rest in sections if name != "Unreleased"]
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}")
    if not released or released[0][0] != version:
        found.append(f"CHANGELOG.md has no section [{version}] on top")
    elif not re.fullmatch(r" [-–] \d{4}-\d{2}-\d{2}", released[0][1]):
        found.append(f"the section [{version}] of CHANGELOG.md has no date")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        found.append("CHANGELOG.md still lists unreleased changes")
    return found


def sbom_problems(sbom: Mapping[str, Any]) -> list[str]:
    """Of a CycloneDX document: it is of this package, and names all that comes along, with versions."""
    components = {each["name"].lower(): each for each in sbom.get("components", ())}
    of = sbom.get("metadata", {}).get("component", {}).get("name")
    found = [] if of == "fencepost" else [f"the document is of {of}"]
    others = components.keys() - {"fencepost"}
    found += [f"{name} is missing" for name in sorted(BASE - others)]
    found += [f"{name} does not belong there" for name in sorted(others - BASE)]
    found += [
        f"{name} has no version" for name, each in sorted(components.items()) if not each.get("version")
    ]
    return found


def main(arguments: list[str]) -> str | None:
    if arguments[0] == "--sbom":
        found = sbom_problems(json.loads(Path(arguments[1]).read_text("utf-8")))
    else:
        from fencepost import __version__

        found = problems(arguments[0], __version__, (ROOT / "CHANGELOG.md").read_text("utf-8"))
    return "\n".join(found) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
