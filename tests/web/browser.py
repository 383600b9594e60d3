"""A real Chromium, where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = (
    "no Chromium was found: install your system's (`apt-get install chromium`; `make test` does so where it may), or "
    "name one with CHROMIUM=/path/to/chromium"
)


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        # A container's root may not use Chromium's sandbox; the only pages opened here are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        expect.set_options(timeout=15_000)  # on a machine that is busy with other tests
        try:
            yield browser
        finally:
            browser.close()
