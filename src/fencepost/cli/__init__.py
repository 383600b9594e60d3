"""`fencepost`: one file per command. Data goes to standard output, logs and messages to standard error.

Exit codes: 0 done, 1 failed, 2 another run is active, 64 usage, 69 store unavailable, 78 configuration,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from fencepost import __version__
from fencepost.cli.audit import audit
from fencepost.cli.cancel import cancel
from fencepost.cli.demo import demo
from fencepost.cli.doctor import doctor
from fencepost.cli.fires import fires
from fencepost.cli.jobs import jobs
from fencepost.cli.pause import pause
from fencepost.cli.preview import preview
from fencepost.cli.resume import resume
from fencepost.cli.retry import retry
from fencepost.cli.run import run
from fencepost.cli.serve import serve
from fencepost.cli.show import show
from fencepost.cli.status import status
from fencepost.cli.token import token
from fencepost.cli.trigger import trigger
from fencepost.cli.why import why
from fencepost.errors import FencepostError, UsageError


class InOrder(click.Group):
    """Lists its commands as they were added, not by the alphabet."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fencepost")
def cli() -> None:
    """Runs every scheduled fire once, on any number of replicas.

    TARGET is module:attribute, as in `fencepost run app:scheduler`. Commands that need no code take a TARGET,
    or find the store by --store, FENCEPOST_STORE or fencepost.toml.
    """


COMMANDS = (
    run,
    serve,
    status,
    jobs,
    fires,
    show,
    why,
    trigger,
    cancel,
    retry,
    pause,
    resume,
    preview,
    audit,
    doctor,
    token,
    demo,
)

for command in COMMANDS:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    code = outcome(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_left()
    sys.exit(code)


def outcome(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and say its exit code."""
    try:
        result = cli.main(args=arguments, prog_name="fencepost", standalone_mode=False)
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
