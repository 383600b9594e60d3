"""Spans of real runs, sent by OpenTelemetry's own exporter to a receiver of its wire format."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from fencepost import Pipeline, Retry, Scheduler, every
from fencepost.model import FireRecord, State, changed
from fencepost.model.traces import clean_traceparent
from fencepost.otel import instrument
from fencepost.runs.events import Event
from fencepost.runs.masking import own_mask
from fencepost.web.logs import Formatter
from tests.telemetry.receiver import Received, Receiver, receiving
from tests.web.serving import QUICK, eventually, service

INTERNAL, CONSUMER = 1, 5
ERROR = 2
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def provider(receiver: Receiver) -> Iterator[TracerProvider]:
    found = TracerProvider()
    found.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    yield found
    found.shutdown()


@pytest.fixture
def scheduler(provider: TracerProvider) -> Scheduler:
    found = Scheduler("memory://", **QUICK)
    instrument(found, tracer_provider=provider)
    return found


def sent(receiver: Receiver, provider: TracerProvider, name: str, number: int = 1) -> list[Received]:
    """So many spans of this name, as soon as they are there."""

    def flushed() -> list[Received]:
        provider.force_flush()
        found = receiver.named(name)
        return found if len(found) >= number else []

    found: list[Received] = eventually(flushed)
    assert len(found) == number
    return found


async def run(scheduler: Scheduler, job: str) -> Any:
    handle = await scheduler.trigger(job)
    return await handle.wait(timeout=120)


async def test_a_manual_run_is_a_root_linked_with_its_caller(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    tracer = provider.get_tracer("application")

    @scheduler.job(every(days=300), id="coroutine")
    async def coroutine() -> None:
        with tracer.start_as_current_span("its own"):
            await asyncio.sleep(0.05)

    async with scheduler:
        with tracer.start_as_current_span("request") as request:
            fire = await run(scheduler, "coroutine")
        called = request.get_span_context()
    [span] = sent(receiver, provider, "run coroutine")
    assert (span.kind, span.parent) == (CONSUMER, "")
    [link] = span.links
    assert (link.why, int(link.trace_id, 16), int(link.span_id, 16)) == (
        "triggered by",
        called.trace_id,
        called.span_id,
    )
    assert span.trace_id != link.trace_id
    assert span.attributes["job.system"] == "fencepost"
    assert (span["job.id"], span["fire.key"], span["fire.token"]) == ("coroutine", fire.key, fire.token)
    assert (span["attempt"], span["replica"], span["outcome"]) == (1, fire.replica, "succeeded")
    assert datetime.fromisoformat(span["fire.due_at"]) == fire.due_at
    assert 0 <= span["start_delay"] < 60
    assert span.begun <= datetime.now(UTC).timestamp()
    [inner] = sent(receiver, provider, "its own")
    assert (inner.parent, inner.trace_id) == (span.span_id, span.trace_id), "current inside of the body"
    assert span.begun <= inner.begun
    assert inner.ended <= span.ended + 0.001


async def test_a_scheduled_run_in_a_thread(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    tracer = provider.get_tracer("application")
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    @scheduler.job(every(seconds=0.3), id="blocking")
    def blocking() -> None:
        tracer.start_span("its own").end()
        loop.call_soon_threadsafe(over.set)

    async with scheduler:
        await asyncio.wait_for(over.wait(), 60)
    provider.force_flush()
    span = receiver.named("run blocking")[0]
    assert (span.kind, span.parent, span.links) == (INTERNAL, "", [])
    assert receiver.named("its own")[0].parent == span.span_id


async def test_a_retry_is_linked_with_the_run_that_failed(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2-and-more")
    own_mask.cache_clear()

    failures = iter([True])

    @scheduler.job(every(days=300), id="flaky", retry=Retry(attempts=2, first=0.05))
    async def flaky() -> None:
        if next(failures, False):
            raise ValueError("row 7 is bad: hunter2-and-more")

    async with scheduler:
        fire = await run(scheduler, "flaky")
        again = await (await scheduler.retry(fire.key, again=True)).wait(timeout=60)
    first, second, third = sent(receiver, provider, "run flaky", 3)
    assert [span["outcome"] for span in (first, second, third)] == ["retrying", "succeeded", "succeeded"]
    assert (first.links, first.status) == ([], ERROR)
    assert "ValueError: row 7 is bad" in first.description
    [(event, about)] = first.events
    assert (event, about["exception.type"]) == ("exception", "ValueError")
    assert "Traceback" in about["exception.stacktrace"]
    assert "hunter2" not in str(first), "secrets are masked"
    assert second.status == 0
    for later, earlier in ((second, first), (third, second)):
        assert [(link.why, link.span_id) for link in later.links] == [("repeats", earlier.span_id)]
    assert third["fire.key"] == again.key != fire.key
    own_mask.cache_clear()


async def test_phases_are_children_and_so_are_spans_made_in_them(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    tracer = provider.get_tracer("application")
    pipeline = Pipeline("load")

    @pipeline.phase("download", message="Fetching")
    async def download() -> None:
        await asyncio.sleep(0)

    @pipeline.phase("import", message="Importing")
    def import_() -> None:
        tracer.start_span("rows").end()
        raise ValueError("no rows")

    scheduler.job(every(days=300))(pipeline)
    async with scheduler:
        await run(scheduler, "load")
    [span] = sent(receiver, provider, "run load")
    [download_span] = sent(receiver, provider, "phase download")
    [import_span] = sent(receiver, provider, "phase import")
    assert {download_span.parent, import_span.parent} == {span.span_id}
    assert (import_span["phase"], import_span.status) == ("import", ERROR)
    assert import_span.events[0][1]["exception.message"] == "no rows"
    assert sent(receiver, provider, "rows")[0].parent == import_span.span_id
    assert (span["outcome"], span.status) == ("failed", ERROR)


async def test_commands_find_the_trace_in_their_environment(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    scheduler.command(["sh", "-c", 'echo "$TRACEPARENT"'], every(days=300), id="command")
    async with scheduler:
        fire = await run(scheduler, "command")
    [span] = sent(receiver, provider, "run command")
    assert fire.output.startswith(f"00-{span.trace_id}-{span.span_id}-")


async def test_a_process_goes_on_with_the_trace(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    from tests.telemetry.apps.bodies import in_process

    scheduler.job(every(days=300), id="process", executor="process")(in_process)
    async with scheduler:
        fire = await run(scheduler, "process")
    [span] = sent(receiver, provider, "run process")
    here = fire.result["environment"]
    assert here.startswith(f"00-{span.trace_id}-{span.span_id}-")
    assert fire.result == {"environment": here, "fire": here, "current": here}


def test_a_header_is_stored_with_the_fire_without_opentelemetry() -> None:
    """And a command gets it, too: the trace goes on although this replica is not part of it."""
    scheduler = Scheduler("memory://", **QUICK)
    seen: list[str | None] = []

    @scheduler.job(every(days=300), id="job")
    async def job(fire: Any) -> None:
        seen.append(fire.traceparent)

    scheduler.command(["sh", "-c", 'echo "$TRACEPARENT"'], every(days=300), id="command")

    def ended(client: Any, job: str, header: str) -> Any:
        asked = client.post(f"/api/v1/jobs/{job}/trigger", headers={"traceparent": header})
        assert asked.status_code == 202
        path = f"/api/v1/fires/{asked.json()['key']}"
        return eventually(lambda: (got := client.get(path).json())["state"] == "succeeded" and got)

    with service(scheduler) as client:
        ended(client, "job", CALLER)
        ended(client, "job", "00-none-of-this-01")
        assert seen == [CALLER, None]
        assert ended(client, "command", CALLER)["output"].strip() == CALLER


async def test_without_a_provider_nothing_is_sent_and_nothing_breaks() -> None:
    scheduler = Scheduler("memory://", **QUICK)
    instrument(scheduler)

    @scheduler.job(every(days=300), id="job", after_crash="rerun")
    async def job(fire: Any) -> None:
        assert fire.traceparent is None

    async with scheduler:
        fire = await run(scheduler, "job")
        assert (fire.state, fire.trace) == ("succeeded", None)


def test_a_run_that_has_no_body_here_has_a_span_all_the_same(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider
) -> None:
    """As of an engine: events say that it has started, and how it ended."""
    moment = datetime(2026, 11, 15, 12, tzinfo=UTC)
    fire = FireRecord("job@x", "job", moment, token=3, attempt=1, replica="r", started_at=moment)
    scheduler.events.emit(Event("started", "r", fire))
    scheduler.events.emit(Event("failed", "r", changed(fire, state=State.FAILED, reason="exit code 3")))
    [span] = sent(receiver, provider, "run job")
    assert (span["outcome"], span["reason"], span["fire.token"]) == ("failed", "exit code 3", 3)
    assert (span.status, span.description) == (ERROR, "exit code 3")


def test_without_the_extra_everything_works_and_asking_for_it_names_the_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'fencepost[otel]'" in done.stdout


WITHOUT = """
import asyncio, sys
sys.modules["opentelemetry"] = None     # as if it were not installed
from fencepost import ConfigurationError, Scheduler, every

async def ran(scheduler):
    @scheduler.job(every(days=300), id="job")
    async def job(): ...
    async with scheduler:
        return await (await scheduler.trigger("job")).wait(timeout=60)

assert asyncio.run(ran(Scheduler("memory://"))).state == "succeeded"
try:
    asyncio.run(ran(Scheduler("memory://", telemetry="otel")))
except ConfigurationError as error:
    print(error)
"""


async def test_json_logs_carry_the_trace(
    scheduler: Scheduler, receiver: Receiver, provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []
    formatter = Formatter("json", str)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter._fields(record))

    handler = Handler()
    logging.getLogger().addHandler(handler)
    caplog.set_level(logging.INFO, "fencepost")

    @scheduler.job(every(days=300), id="job")
    def job() -> None:
        logging.getLogger("application").warning("half way")

    try:
        async with scheduler:
            await run(scheduler, "job")
            logging.getLogger("application").warning("outside")
    finally:
        logging.getLogger().removeHandler(handler)
    [span] = sent(receiver, provider, "run job")
    ids = {"trace_id": span.trace_id, "span_id": span.span_id}
    [inside] = [line for line in lines if line["message"] == "half way"]
    [outside] = [line for line in lines if line["message"] == "outside"]
    assert inside.items() >= ids.items()
    assert "trace_id" not in outside
    [end] = [line for line in lines if line.get("event") == "run.succeeded"]
    assert end.items() >= ids.items(), "and so does what the replica says of it"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (CALLER, CALLER),
        (f" {CALLER} ", CALLER),
        (CALLER.replace("00-4b", "cc-4b"), CALLER),
        (CALLER.replace("00-4b", "cc-4b") + "-what-the-future-brings", CALLER),
        (CALLER + "-more", None),
        (CALLER.replace("00-4b", "ff-4b"), None),
        (CALLER.upper(), None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None),
        (CALLER.replace("00-4b", "cc-4b") + "-" + "x" * 1000, None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_what_a_traceparent_is(given: object, found: str | None) -> None:
    assert clean_traceparent(given) == found
