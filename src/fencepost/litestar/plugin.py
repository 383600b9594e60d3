"""The plugin: the scheduler starts and stops with the application, its service is mounted, `litestar fencepost …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import click
from litestar.handlers import asgi
from litestar.plugins import CLIPlugin, InitPlugin

from fencepost.cli.hosted import Hosted
from fencepost.errors import UsageError
from fencepost.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from litestar.config.app import AppConfig

HOSTED = Hosted(
    program="litestar fencepost",
    target="fencepost.litestar:scheduler",
    start="litestar fencepost run",
    owner="the application",
)


class FencepostPlugin(InitPlugin, CLIPlugin):
    _latest: ClassVar[Scheduler | None] = None

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        path: str | None = "/fencepost",
        replica: bool = True,
        authorize: Callable[[Any], Any] | None = None,
    ) -> None:
        """`path`: where API, events and dashboard are mounted; None: nowhere. `replica` and `authorize`: see
        `Scheduler.asgi`."""
        self._scheduler = scheduler
        self._path = None if path is None else "/" + path.strip("/")
        self._replica = replica
        self._authorize = authorize
        FencepostPlugin._latest = scheduler

    @staticmethod
    def latest() -> Scheduler:
        if FencepostPlugin._latest is None:
            raise UsageError("this application has no FencepostPlugin")
        return FencepostPlugin._latest

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        if self._path is None:
            app_config.lifespan.append(self._scheduler.lifespan)
            return app_config
        service = self._scheduler.asgi(replica=self._replica, authorize=self._authorize)
        app_config.lifespan.append(service.lifespan)

        @asgi(self._path, is_mount=True, copy_scope=True)
        async def fencepost(scope: Any, receive: Any, send: Any) -> None:
            await service(self._below(scope), receive, send)

        app_config.route_handlers.append(fencepost)
        return app_config

    def _below(self, scope: Any) -> dict[str, Any]:
        """Litestar cuts the mount's path off and puts a slash at the end; a mounted ASGI application expects the whole
        path, and which part of it is the mount's in `root_path`."""
        whole = unquote(scope.get("raw_path", b"").decode("latin-1"))
        rest = whole.partition(self._path or "")[2] if whole else scope["path"].rstrip("/")
        root = scope.get("root_path", "").rstrip("/") + (self._path or "")
        return {**scope, "app": None, "root_path": root, "path": root + rest}

    def on_cli_init(self, cli: click.Group) -> None:
        cli.add_command(_command)


@click.command(
    "fencepost",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
    short_help="Runs scheduled jobs, and shows and changes them.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _command(arguments: tuple[str, ...]) -> None:
    HOSTED.main(arguments or ["--help"])
