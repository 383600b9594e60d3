"""One process of a peer: python -m bench.peers.child APP prepare|replica|worker WORK.

Runs in the peer's environment.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys

from bench.peers.work import Work


def main() -> None:
    name, role, text = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    work = Work(**json.loads(text))
    work.end_with_parent()
    app = importlib.import_module(f"bench.peers.apps.{name}")
    getattr(app, role)(work)


if __name__ == "__main__":
    main()
