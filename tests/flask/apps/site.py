"""A site whose jobs note every run."""

import asyncio
import os
import time

from flask import Flask, current_app

from fencepost import every
from fencepost.flask import Fencepost
from tests.guard.apps.notes import note

app = Flask(__name__)
app.config["NAME"] = "site"
fencepost = Fencepost(app)


@fencepost.job(every(seconds=1), id="poll", overlap="allow(9)")
def poll():
    assert current_app.config["NAME"] == "site"
    note("poll")
    time.sleep(0.05)


@fencepost.job(every(seconds=1), id="tidy", overlap="allow(9)")
async def tidy():
    assert current_app.config["NAME"] == "site"
    await asyncio.sleep(0.02)
    note("tidy")


@fencepost.job(every(seconds=1), id="greet", overlap="allow(9)", args={"whom": "late"})
def greet(whom):
    note("greet")


app.register_blueprint(fencepost.blueprint(), url_prefix="/fencepost")


@app.get("/")
def home():
    return {"pid": os.getpid()}


@app.post("/poll")
def poll_now():
    return {"key": fencepost.sync.trigger(poll).key}
