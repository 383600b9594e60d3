"""A small shop: orders are shipped in the background, by whichever worker has room, each once."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from flask import Flask, current_app, g, jsonify, request
from flask.typing import ResponseReturnValue

from fencepost import Fire, every
from fencepost.flask import Fencepost

fencepost = Fencepost()


def create_app() -> Flask:
    app = Flask(__name__)
    folder = Path(os.environ.get("SITE_FOLDER", "."))
    app.config["DATABASE"] = str(folder / "site.db")
    app.config["FENCEPOST_STORE"] = f"sqlite:///{app.config['DATABASE']}"  # jobs and orders in one database
    fencepost.init_app(app)
    app.register_blueprint(fencepost.blueprint(), url_prefix="/fencepost")
    app.add_url_rule("/orders", view_func=orders)
    app.add_url_rule("/orders", view_func=order, methods=["POST"])
    app.teardown_appcontext(lambda error: close())
    with app.app_context():
        database().execute(
            "create table if not exists orders (number integer primary key, what text, fire text)"
        )
        database().commit()
    return app


@fencepost.task(id="ship")
def ship(number: int, fire: Fire) -> None:
    """The fire's key is written with the order: it shows that each was shipped once."""
    database().execute("update orders set fire = ? where number = ? and fire is null", (fire.key, number))
    database().commit()


@fencepost.job(every(minutes=1), id="remind")
def remind() -> int:
    [waiting] = database().execute("select count(*) from orders where fire is null").fetchone()
    return int(waiting)


def order() -> ResponseReturnValue:
    """The order and its fire are committed together."""
    db = database()
    number = db.execute("insert into orders (what) values (?)", (request.get_json()["what"],)).lastrowid
    handle = fencepost.sync.trigger(ship, args={"number": number}, connection=db)
    db.commit()
    return jsonify(number=number, fire=handle.key), 202


def orders() -> ResponseReturnValue:
    rows = database().execute("select number, what, fire from orders order by number").fetchall()
    return jsonify([{"number": number, "what": what, "shipped_by": fire} for number, what, fire in rows])


def database() -> sqlite3.Connection:
    """One per application context: per request, and per run of a job."""
    if "db" not in g:
        g.db = sqlite3.connect(current_app.config["DATABASE"], timeout=10)
    found: sqlite3.Connection = g.db
    return found


def close() -> None:
    if (db := g.pop("db", None)) is not None:
        db.close()
