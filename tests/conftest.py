import gc
import os
import signal
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("fencepost.testing.conformance", "tests.protocol.comparison")

pytest_plugins = ["tests.servers.fixtures"]

# On a busy machine a draw may wait for its turn for a second. That says nothing about the strategy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# What a shell runs in the background ignores SIGINT, what nohup runs ignores SIGHUP, and so would everything they
# start: `make test &` and `nohup make test` work as well.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


MEMORY = "/dev/shm"
ROOM = 4 * 2**30
"""Bytes that must be free there: several times what the tests write."""


def keeps_files(folder: str) -> bool:
    """Whether all the files of the tests, and the programs among them, find room there."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    disk = os.statvfs(folder)
    return not disk.f_flag & os.ST_NOEXEC and disk.f_bavail * disk.f_frsize >= ROOM


# Embedded stores wait for the disk at every step. The tests kill processes, not the machine: memory will do.
if "TMPDIR" not in os.environ and keeps_files(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


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
