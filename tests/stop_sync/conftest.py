from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pytest

from stop_sync.compare import write_matches, write_problems
from stop_sync.data import World, write_sources
from stop_sync.preprocess import preprocess_gtfs, preprocess_osm, preprocess_register
from stop_sync.quality import A_DAY
from stop_sync.served import MAKERS, Switches
from stop_sync.source_server import SourceServer

STOPS = 200


class Compared(NamedTuple):
    world: World
    folder: Path


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A small world after all phases. Nobody changes it."""
    return everything(World(seed=5, stops=STOPS), tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="session")
def shared_server() -> Iterator[SourceServer]:
    with SourceServer(seed=5, stops=STOPS) as server:
        yield server


@pytest.fixture
def server(shared_server: SourceServer) -> SourceServer:
    """As if it had just been started."""
    for source in MAKERS:
        shared_server.switch(source, **asdict(Switches()))
    shared_server.asked.clear()
    return shared_server


def everything(world: World, folder: Path) -> Compared:
    sources = write_sources(folder, world)
    preprocess_register(sources.register, folder, A_DAY)
    preprocess_gtfs(sources.gtfs, folder)
    preprocess_osm(sources.osm, folder)
    write_matches(folder)
    write_problems(folder)
    return Compared(world, folder)


def environment() -> dict[str, str]:
    """In which another process finds the example."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "examples" / "stop_sync")}
