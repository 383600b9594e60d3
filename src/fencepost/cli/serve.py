"""`fencepost serve app:scheduler`: take part, and answer over HTTP."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import click

from fencepost.cli.completing import targets
from fencepost.cli.run import join_pools, log_options, pool_option
from fencepost.cli.target import load
from fencepost.errors import ConfigurationError, missing_extra
from fencepost.insight.existence import must_exist
from fencepost.scheduler.scheduler import Scheduler


@click.command()
@click.argument("target", required=False, shell_complete=targets)
@click.option("--store", "url", help="Without TARGET: URL of the store; default: FENCEPOST_STORE.")
@click.option("--namespace", help="Without TARGET: of the store; default: FENCEPOST_NAMESPACE.")
@click.option(
    "--replica", type=click.Choice(["on", "off"]), default="on", show_default=True, help="Run jobs as well?"
)
@click.option("--host", help="Address to listen on; default: FENCEPOST_HOST, else 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Default: FENCEPOST_PORT, else 8787.")
@click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM): serve HTTPS.")
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM).")
@click.option(
    "--root-path",
    metavar="PATH",
    default="",
    callback=lambda _, __, path: checked_root(path),
    help="Where a proxy shows this service, such as /ops/jobs.",
)
@pool_option
@log_options
def serve(
    target: str | None,
    url: str | None,
    namespace: str | None,
    replica: str,
    root_path: str,
    pools: tuple[str, ...],
    log_format: Any,
    verbose: bool,
    **options: Any,
) -> None:
    """Serve dashboard, API, live events, health and metrics, and run the jobs of TARGET.

    An address that other machines can reach demands FENCEPOST_TOKENS_FILE (see `fencepost token`), FENCEPOST_AUTH_TOKEN
    or FENCEPOST_AUTH_TOKEN_FILE. SIGHUP reads tokens and certificate again. With `--replica off` TARGET may be left
    out: a dashboard for a store alone.
    """
    scheduler = _scheduler(target, url, namespace, replica == "on")
    join_pools(scheduler, pools)
    given = {name: value for name, value in options.items() if value is not None}
    scheduler.settings = replace(scheduler.settings, **given)
    try:
        from fencepost.web.app import WebApp
        from fencepost.web.auth import check_address
        from fencepost.web.logs import configure
        from fencepost.web.server import serve_on
    except ModuleNotFoundError as error:
        raise missing_extra("the service", error, "web") from None

    app = WebApp(scheduler, replica=replica == "on", root_path=root_path)
    check_address(scheduler.settings)
    with bound(scheduler) as listener:
        configure(log_format, scheduler.settings, verbose=verbose)
        serve_on(listener, app, scheduler.settings)


def _scheduler(target: str | None, url: str | None, namespace: str | None, takes_part: bool) -> Scheduler:
    """The target's; or one without code on a store that is there: a dashboard must not make an empty one."""
    if target is None:
        if takes_part:
            raise click.UsageError("Missing argument 'TARGET'. Without one, `--replica off` shows a store.")
        scheduler = Scheduler(store=url, namespace=namespace)
        must_exist(scheduler.store, scheduler.store_name, None)
        scheduler.store.creates = False
        return scheduler
    if url is not None or namespace is not None:
        raise click.UsageError("--store and --namespace are for `--replica off` without a TARGET.")
    return load(target)


def checked_root(path: str) -> str:
    if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", path):
        raise click.BadParameter("give a path such as /ops/jobs")
    return path.rstrip("/")


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
