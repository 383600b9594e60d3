"""The status route for applications made with Flask and SQLAlchemy: `flask --app stop_sync.flask_web run`.

The same document, label and overlay as in `web.py`. The pipeline stays in its service: this process takes no part, it
asks the store. Under gunicorn each worker makes the application for itself; with `--preload`, after the fork.
"""

from __future__ import annotations

import os

from flask import Flask, Response, jsonify, render_template_string
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from fencepost import Scheduler, StoreUnavailable
from fencepost.pipeline import pipeline_status_blocking
from fencepost.web.widget import StatusTag, script
from stop_sync.pipeline import NAME
from stop_sync.settings import Settings

PAGE = """<!doctype html>
<title>Stop sync</title>
<script type="module" src="/widget.js"></script>
{{ status() }}
<p>{{ "Nothing has been imported yet." if stops is none else "%d stops in the register" % stops }}</p>
"""


def create_app(settings: Settings | None = None) -> Flask:
    settings = settings or Settings.of(os.environ)
    settings.make_folders()
    app = Flask(__name__)
    engine = create_engine(settings.database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    scheduler = Scheduler(**settings.scheduling)  # connects when it is first asked, in the process that asks
    tag = StatusTag(scheduler, NAME, time_zone=settings.timezone, live="off")  # rendered with the page

    @app.get("/api/system/pipeline_status")
    def status() -> tuple[Response, int]:
        try:
            return jsonify(pipeline_status_blocking(scheduler, NAME)), 200
        except StoreUnavailable:  # the label says so; the pages are served as ever
            return jsonify({"detail": "the store does not answer"}), 503

    @app.get("/widget.js")
    def widget() -> Response:
        return Response(script(), mimetype="text/javascript")

    @app.get("/")
    def home() -> str:
        try:
            with engine.connect() as connection:
                stops = connection.execute(text("select count(*) from stops")).scalar_one()
        except DBAPIError:  # no table yet
            stops = None
        return render_template_string(PAGE, status=tag, stops=stops)

    return app
