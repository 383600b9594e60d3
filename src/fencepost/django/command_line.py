"""Fencepost's command line with the project's scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.cli.hosted import Hosted
from fencepost.django.project import TARGET

HOSTED = Hosted(
    program="manage.py fencepost",
    target=TARGET,
    start="python manage.py fencepost run",
    owner="the project",
)


def main(arguments: Sequence[str]) -> None:
    """Exits with the command's own code."""
    HOSTED.main(arguments)


def exit_code(arguments: Sequence[str]) -> int:
    return HOSTED.outcome(arguments)


def with_target(arguments: Sequence[str]) -> list[str]:
    return HOSTED.with_target(arguments)
