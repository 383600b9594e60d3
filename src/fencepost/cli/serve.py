"""`fencepost serve app:scheduler`: take part, and answer over HTTP."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import click

from fencepost.cli.completing import targets
from fencepost.cli.run import log_options
from fencepost.cli.target import load
from fencepost.errors import ConfigurationError, missing_extra
from fencepost.scheduler.scheduler import Scheduler


@click.command()
@click.argument("target", shell_complete=targets)
@click.option(
    "--replica", type=click.Choice(["on", "off"]), default="on", show_default=True, help="Run jobs as well?"
)
@click.option("--host", help="Address to listen on; default: FENCEPOST_HOST, else 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Default: FENCEPOST_PORT, else 8787.")
@click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM): serve HTTPS.")
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM).")
@log_options
def serve(target: str, replica: str, log_format: Any, verbose: bool, **options: Any) -> None:
    """Serve API, live events, health and metrics, and run the jobs of TARGET.

    An address that other machines can reach demands FENCEPOST_TOKENS_FILE (see `fencepost token`), FENCEPOST_AUTH_TOKEN
    or FENCEPOST_AUTH_TOKEN_FILE. SIGHUP reads tokens and certificate again.
    """
    scheduler = load(target)
    given = {name: value for name, value in options.items() if value is not None}
    scheduler.settings = replace(scheduler.settings, **given)
    try:
        from fencepost.web.app import WebApp
        from fencepost.web.auth import check_address
        from fencepost.web.logs import configure
        from fencepost.web.server import serve_on
    except ModuleNotFoundError as error:
        raise missing_extra("the service", error, "web") from None

    app = WebApp(scheduler, replica=replica == "on")
    check_address(scheduler.settings)
    with bound(scheduler) as listener:
        configure(log_format, scheduler.settings, verbose=verbose)
        serve_on(listener, app, scheduler.settings)


def bound(scheduler: Scheduler) -> socket.socket:
    """The listening socket. Made first: an address that is taken is found before anything starts."""
    host, port = scheduler.settings.host, scheduler.settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --host and --port"
        ) from None
