"""`python -m stop_sync.data FOLDER --seed 7`: the three sources, and the truth, as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from stop_sync.data import World, write_sources


def main() -> None:
    parser = argparse.ArgumentParser(description="Write invented sources whose truth is known.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stops", type=int, default=1500)
    parser.add_argument("--version", type=int, default=1, help="each one has a few stops more")
    options = parser.parse_args()
    for path in write_sources(options.folder, World(options.seed, options.stops, options.version)):
        print(path)


if __name__ == "__main__":
    main()
