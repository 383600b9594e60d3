"""The rooms of the source: who may import whom, and the names of earlier releases."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fencepost
from fencepost.errors import ConfigurationError
from fencepost.model import integrations

SOURCE = Path(fencepost.__file__).parent


@pytest.mark.parametrize("old", sorted(fencepost._MOVED))
def test_an_old_name_is_the_same_module_and_warns(old: str) -> None:
    sys.modules.pop(f"fencepost.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"fencepost.{old} is fencepost.{fencepost._MOVED[old]} now"):
        found = importlib.import_module(f"fencepost.{old}")
    assert found is importlib.import_module(f"fencepost.{fencepost._MOVED[old]}")
    assert found.__spec__ is not None
    assert found.__spec__.name == f"fencepost.{fencepost._MOVED[old]}"


def test_what_is_below_an_old_name_is_no_second_copy() -> None:
    for name in ("fencepost.audit", "fencepost.audit.report"):
        sys.modules.pop(name, None)
    with (
        pytest.warns(DeprecationWarning, match=r"fencepost.audit is fencepost.insight.audit now"),
        pytest.warns(
            DeprecationWarning, match=r"fencepost.audit.report is fencepost.insight.audit.report now"
        ),
    ):
        from fencepost.audit.report import AuditResult  # type: ignore[import-not-found]
    from fencepost.insight.audit.report import AuditResult as same

    assert AuditResult is same


def test_the_warning_names_the_line_that_imports() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sys.modules.pop("fencepost.triggers", None)
        from fencepost.triggers import every  # type: ignore[import-not-found]
    assert every is fencepost.every
    assert [warning.filename for warning in caught] == [__file__]


def test_classes_that_were_in_modules_are_found_in_their_rooms() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"fencepost.scheduler.Scheduler is fencepost.scheduler.scheduler.S"
    ):
        from fencepost.scheduler import Scheduler
    with pytest.warns(DeprecationWarning, match=r"fencepost.replica.Identity is fencepost.replica.replica.I"):
        from fencepost.replica import Identity
    with pytest.warns(DeprecationWarning, match=r"fencepost.insight.audit.Report is .*.AuditResult now"):
        from fencepost.insight.audit import Report

    assert Scheduler is fencepost.Scheduler
    assert Report.__name__ == "AuditResult"
    assert Identity.__module__ == "fencepost.replica.replica"
    with pytest.raises(AttributeError, match="no attribute 'Replicas'"):
        _ = fencepost.replica.Replicas


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="fencepost.trigers"):
        importlib.import_module("fencepost.trigers")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = "import sys, fencepost; print([name for name in sys.modules if name.startswith('fencepost.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_wheel_has_no_test_tools_and_few_rooms() -> None:
    names = {path.name for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    # Integrations are leaves that nothing imports.
    rooms = names - {
        "apscheduler",
        "django",
        "engine_worker",
        "engines",
        "flask",
        "litestar",
        "notify",
        "otel",
    }
    assert len(rooms) <= 17, sorted(rooms)
    assert not [
        path for path in SOURCE.rglob("*.py") if path.stem in ("checker", "mutants", "comparison", "sim")
    ]


def test_integrations_are_found_by_what_is_installed() -> None:
    assert "asgi" in integrations.registered("fencepost.applications")
    assert "apscheduler" in integrations.registered("fencepost.triggers")


def test_a_missing_registration_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="no 'cgi' is registered .* install it again"):
        integrations.load("fencepost.applications", "cgi")
