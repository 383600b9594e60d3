"""The rooms of the source: who may import whom, and the names of earlier releases."""

from __future__ import annotations

import ast
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

MOST_METHODS = 25
DEEPEST = 3
"""A store over the rules, over what a store is, over what can be read of one."""


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


# --- the classes of the store ---------------------------------------------------------------------------------


def classes_in(folder: Path) -> dict[str, ast.ClassDef]:
    """By name, which means one thing in the whole tree (`test_words.py`)."""
    trees = [ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))]
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def methods_of(each: ast.ClassDef) -> int:
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in each.body)


def depth_of(name: str, classes: dict[str, ast.ClassDef]) -> int:
    """How many classes of the folder it stands on, one on the other."""
    if name not in classes:
        return -1
    # With a dot it is a class of a library: `class Connection(psycopg.Connection[…])`.
    bases = [ast.unparse(base).partition("[")[0] for base in classes[name].bases]
    return 1 + max((depth_of(base, classes) for base in bases), default=-1)


def test_a_class_of_the_store_owns_one_thing() -> None:
    """Objects that do one thing each, rather than one object that inherits everything."""
    classes = classes_in(SOURCE / "store")
    large = {name: methods_of(each) for name, each in classes.items() if methods_of(each) > MOST_METHODS}
    deep = {name: depth_of(name, classes) for name in classes if depth_of(name, classes) > DEEPEST}
    assert not large, f"methods, {MOST_METHODS} at the most: {large}"
    assert not deep, f"classes one on the other, {DEEPEST} below the topmost: {deep}"


def test_a_large_and_a_deep_class_are_noticed(tmp_path: Path) -> None:
    methods = "\n".join(f"    async def step{number}(self): ..." for number in range(MOST_METHODS + 1))
    (tmp_path / "one.py").write_text(f"class Large:\n{methods}\n")
    (tmp_path / "two.py").write_text(
        "class B(Large): ...\nclass C(B[int]): ...\nclass D(ABC, C): ...\nclass E(lib.E): ...\n"
    )
    classes = classes_in(tmp_path)
    assert methods_of(classes["Large"]) == MOST_METHODS + 1
    assert [depth_of(name, classes) for name in ("Large", "B", "C", "D", "E")] == [0, 1, 2, 3, 0]
