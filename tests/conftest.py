import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("fencepost.testing.conformance", "fencepost.testing.comparison")

pytest_plugins = ["tests.servers.fixtures"]

# On a busy machine a draw may wait for its turn for a second. That says nothing about the strategy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# What a shell runs in the background ignores SIGINT, and so would everything it starts: `make test &` works as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
    # It has been read by now. The commands that tests start would warn of a variable they do not know.
    os.environ.pop("FENCEPOST_COMPARISON_SEEDS", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Log lines that hold half a character, as some tests hand in, must not stop the worker that reports them."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
