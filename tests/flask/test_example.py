"""examples/flask_site: the order and its fire are committed together, and shipped once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.web.serving import eventually


@pytest.mark.slow
def test_orders_are_shipped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_FOLDER", str(tmp_path))
    import site_app

    app = site_app.create_app()
    client = app.test_client()
    try:
        asked = [client.post("/orders", json={"what": f"post {n}"}).get_json() for n in range(3)]

        def shipped() -> Any:
            rows = client.get("/orders").get_json()
            return len(rows) == 3 and all(row["shipped_by"] for row in rows) and rows

        rows = eventually(shipped)
        assert {row["number"]: row["shipped_by"] for row in rows} == {
            each["number"]: each["fire"] for each in asked
        }
        fires = app.extensions["fencepost"].sync.find_fires("ship")
        assert sorted(fire.key for fire in fires) == sorted(each["fire"] for each in asked)
        assert client.get("/fencepost/readyz").get_json() == {"ready": True}
    finally:
        app.extensions["fencepost"].stop_in_background()
