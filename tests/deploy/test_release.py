"""What must agree before a version is published, and the workflows that see to it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.release_check import BASE, problems, sbom_problems

ROOT = Path(__file__).parents[2]
GOOD = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\n- new\n\n## [1.2.2] - 2026-11-01\n"


def test_what_agrees_is_released() -> None:
    assert problems("v1.2.3", "1.2.3", GOOD) == []


@pytest.mark.parametrize(
    ("tag", "version", "changelog"),
    [
        ("v1.2.4", "1.2.3", GOOD),
        ("v1.2.4", "1.2.4", GOOD),
        ("v1.2.3", "1.2.3", GOOD.replace(" - 2026-12-01", "")),
        ("v1.2.3", "1.2.3", GOOD.replace("[Unreleased]\n", "[Unreleased]\n\n- forgotten\n")),
        ("v1.2.3", "1.2.3", "# Changelog\n"),
    ],
)
def test_what_does_not_agree_is_named(tag: str, version: str, changelog: str) -> None:
    assert problems(tag, version, changelog)


@pytest.mark.parametrize("name", ["tests", "release"])
def test_workflows_call_targets_that_exist_and_ask_for_few_rights(name: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    targets = (ROOT / "Makefile").read_text()
    assert workflow["permissions"] in ({}, {"contents": "read"})
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    for command in commands:
        if command.startswith("make "):
            for target in command.split()[1:]:
                assert f"{target}:" in targets or f" {target}:" in targets or target.startswith(".venv/")
    assert any(command.startswith("make") for command in commands)


def sbom(*names: str) -> dict[str, Any]:
    components = [{"name": name, "version": "1"} for name in names]
    return {"metadata": {"component": {"name": "fencepost"}}, "components": components}


def test_the_list_of_what_comes_along_is_complete() -> None:
    assert sbom_problems(sbom(*BASE)) == []
    assert sbom_problems(sbom(*BASE, "leftpad")) == ["leftpad does not belong there"]
    assert sbom_problems(sbom(*(BASE - {"rich"}))) == ["rich is missing"]
    assert sbom_problems({"components": []})[0] == "the document is of None"


def test_addresses_of_the_project_are_the_same_everywhere() -> None:
    """They are placeholders until it has a home, and must be changed together."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    site = (ROOT / "mkdocs.yml").read_text()
    assert f"repo_url: {urls['Homepage']}\n" in site
    assert f"site_url: {urls['Documentation']}\n" in site
    text = (ROOT / "pyproject.toml").read_text()
    owner = urls["Homepage"].removeprefix("https://github.com/")
    assert {each for each in re.findall(r"github(?:usercontent)?\.com/([\w-]+/[\w-]+)", text)} == {owner}
