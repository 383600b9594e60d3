"""`manage.py fencepost run|status|why|…`: every command of Fencepost, on the project's scheduler."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, handle_default_options

from fencepost.django.command_line import exit_code, main


class Command(BaseCommand):  # type: ignore[misc]
    help = (
        "Runs the project's scheduled jobs, and shows and changes them: run, status, why, trigger, doctor, …"
    )
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Not Django's parser: the options are those of Fencepost's commands."""
        options, arguments = _djangos_options().parse_known_args(argv[2:])
        handle_default_options(options)
        main(arguments)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *, arguments: list[str], **options: Any) -> None:
        """By `call_command("fencepost", "status")`."""
        if code := exit_code(arguments):
            raise CommandError(f"fencepost {' '.join(arguments)} failed", returncode=code)


def _djangos_options() -> argparse.ArgumentParser:
    """Those of every command that Django has used already, before it came here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    return parser
