"""The Celery engine against a real broker: what it sends, and what it does not claim to know."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from celery import Celery

from fencepost import ConfigurationError
from fencepost.engines.celery import CeleryEngine
from fencepost.runs.engines import Order
from tests.engines.orders import an_order
from tests.servers import RedisServer, valkey

pytestmark = pytest.mark.cluster


def an_app(url: str) -> Celery:
    app = Celery("tests", broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"socket_timeout": 5, "socket_connect_timeout": 5}
    return app


def waiting(server: RedisServer, queue: str) -> list[dict]:
    """The messages in a queue."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        return [json.loads(each) for each in client.lrange(queue, 0, -1)]


async def test_an_order_is_a_message_under_its_ref(valkey_server: RedisServer, valkey_url: str) -> None:
    app = an_app(valkey_url)
    try:
        engine = CeleryEngine(app)
        order = an_order("celery", options={"queue": "slow", "task": "reports.build"})
        await engine.submit(order)
        (message,) = waiting(valkey_server, "slow")
        assert (message["headers"]["id"], message["headers"]["task"]) == (order.ref, "fencepost.carry_out")
        assert message["headers"]["ignore_result"] is True
        (sent,), _, _ = json.loads(b64decode(message["body"]))
        assert Order.from_json(sent) == order
    finally:
        app.close()


async def test_celery_is_never_sure(valkey_url: str) -> None:
    """A message that is lost reads as one that waits."""
    app = an_app(valkey_url)
    try:
        engine = CeleryEngine(app)
        order, unknown = an_order("celery"), an_order("celery").ref
        await engine.submit(order)
        assert {each.kind for each in (await engine.poll([order.ref, unknown])).values()} == {"unsure"}
        await engine.stop(unknown)
        await engine.forget(unknown)
    finally:
        app.close()


async def test_a_broker_that_is_away_is_an_error() -> None:
    with valkey() as server:
        app = an_app(server.url)
        server.stop()
        try:
            with pytest.raises(Exception, match="refused"):
                await CeleryEngine(app).submit(an_order("celery"))
        finally:
            app.close()


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'queue'"):
        CeleryEngine.check_options({"queu": "slow"})
    with pytest.raises(ConfigurationError, match="wrong type"):
        CeleryEngine.check_options({"queue": 3})
    monkeypatch.delenv("FENCEPOST_CELERY_APP", raising=False)
    with pytest.raises(ConfigurationError, match="set FENCEPOST_CELERY_APP"):
        CeleryEngine()
    with pytest.raises(ConfigurationError, match="not a Celery application"):
        CeleryEngine(json)
