"""`fencepost`: one file per command. Data goes to standard output, logs to standard error.

Exit codes: 0 done, 1 failed, 2 another run is active, 64 usage, 69 store unavailable, 78 configuration,
130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fencepost._version import __version__
from fencepost.cli.preview import preview
from fencepost.cli.run import run
from fencepost.errors import FencepostError, UsageError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fencepost")
def cli() -> None:
    """Runs every scheduled fire once, on any number of replicas."""


cli.add_command(run)
cli.add_command(preview)


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(outcome(arguments))


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
    except FencepostError as error:
        click.echo(f"fencepost: {error}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0
