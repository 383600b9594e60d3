"""`fencepost`: one file per command. Data goes to standard output, logs and messages to standard error.

Exit codes: 0 done, 1 failed, 2 another run is active, 64 usage, 69 store unavailable, 78 configuration,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword

import click

from fencepost import __version__
from fencepost.errors import FencepostError, UsageError

PROGRAM = "fencepost"

COMMANDS = (
    "run",
    "serve",
    "status",
    "jobs",
    "fires",
    "limits",
    "show",
    "why",
    "trigger",
    "cancel",
    "retry",
    "pause",
    "resume",
    "skip",
    "backfill",
    "preview",
    "audit",
    "doctor",
    "notify",
    "token",
    "store",
    "init",
    "import",
    "demo",
)
"""In the order of the help text."""
MODULES = {"import": "importing"}
"""Where a module cannot have the name of its command."""


class OnDemand(click.Group):
    """Imports a command when it is called: the others would take longer to import than most commands to run."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"fencepost.cli.{MODULES.get(name, name)}")
        command: click.Command = getattr(module, f"{name}_" if iskeyword(name) else name)
        return command


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fencepost")
def cli() -> None:
    """Runs every scheduled fire once, on any number of replicas.

    TARGET is module:attribute, as in `fencepost run app:scheduler`. Commands that need no code take a TARGET,
    or find the store by --store, FENCEPOST_STORE or fencepost.toml.
    """


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    code = outcome(arguments, program)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_left()
    sys.exit(code)


def outcome(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run a command line and say its exit code."""
    try:
        result = cli.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.UsageError as error:
        # click itself exits with 2, which here means that another run is active.
        error.show()
        return UsageError.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _reader_left()
    except FencepostError as error:
        click.echo(f"fencepost: {error}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0


def _reader_left() -> int:
    """`fencepost fires | head -1`: the reader has gone, and nothing more may be written at exit either."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
