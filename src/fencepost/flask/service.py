"""The service as a blueprint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, request
from flask.blueprints import BlueprintSetupState

from fencepost.errors import ConfigurationError
from fencepost.flask.taking_part import takes_part
from fencepost.scheduler.applications import WsgiService
from fencepost.scheduler.scheduler import Scheduler

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def service_blueprint(name: str, authorize: Callable[[Any], Any] | None) -> Blueprint:
    blueprint = Blueprint(name, __name__)
    services: dict[Flask, WsgiService] = {}

    def registered(state: BlueprintSetupState) -> None:
        scheduler = state.app.extensions.get("fencepost")
        if not isinstance(scheduler, Scheduler):
            raise ConfigurationError("init_app(app) first, then register its blueprint")
        ask = None if authorize is None else lambda _: authorize(request)
        app = cast(Flask, state.app)
        services[app] = scheduler.wsgi(replica=takes_part(app), authorize=ask)

    def answer(path: str = "") -> Response:
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
        found = services[app].answer(_below(request.environ, path))
        return Response(found.body, found.status, found.headers)

    blueprint.record(registered)
    for rule in ("/", "/<path:path>"):
        blueprint.add_url_rule(rule, "service", answer, methods=METHODS, provide_automatic_options=False)
    return blueprint


def _below(environ: dict[str, Any], path: str) -> dict[str, Any]:
    """The environment as an application sees it that is mounted where this blueprint is."""
    raw = "/" + path.encode().decode("latin-1")
    whole: str = environ["PATH_INFO"]
    prefix = whole.removesuffix(raw)
    return {
        **environ,
        "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + prefix,
        "PATH_INFO": whole[len(prefix) :],
    }
