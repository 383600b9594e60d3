"""Each engine for a short while under faults; `python -m soak.engines` does the same for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.scene import Judged, play

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("place", ["celery", "dask", "kubernetes"])
def test_every_fire_is_accounted_for_and_no_token_starts_twice(place: str, tmp_path: Path) -> None:
    *_, judged = play(place, tmp_path, seconds=32, rate=1)
    assert isinstance(judged, Judged)
    assert not judged.violations, str(judged)
    assert judged.states["succeeded"] >= 10, str(judged)
