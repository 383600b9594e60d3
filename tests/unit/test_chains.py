"""Chains as people meet them: written down, refused where they bite their own tail, and explained as one trace."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fencepost import Scheduler, after, every
from fencepost.errors import ConfigurationError
from fencepost.insight import why
from fencepost.insight.chains import chain_of, trace_of
from fencepost.insight.visible import VisibleStore
from fencepost.model import Job
from fencepost.model.triggers.following import After
from fencepost.scheduler.jobfile import scheduler_from
from fencepost.store.base import PutJob
from fencepost.testing import virtual
from fencepost.testing.virtual import VirtualTime

RETENTION = timedelta(days=30)


def scheduler(broken: bool = False) -> Scheduler:
    scheduler = Scheduler("memory://")

    @scheduler.job(every(hours=1), id="extract")
    def extract() -> None: ...

    @scheduler.job(after(extract), id="load")
    def load() -> None:
        if broken:
            raise RuntimeError("the warehouse is down")

    @scheduler.job(after(load), id="report")
    def report() -> None: ...

    @scheduler.job(after(extract, load, on="ended"), id="clean_up")
    def clean_up() -> None: ...

    return scheduler


def explained(time: VirtualTime, job: str, at: str | None = None) -> str:
    return str(time.do(why.answer(VisibleStore(time.store), job, at, RETENTION)))


def test_a_chain_is_one_trace() -> None:
    with virtual(scheduler()) as time:
        time.advance(hours=1, minutes=1)
        [record] = time.do(time.store.jobs(["load"]))
        links = time.do(trace_of(time.store, record, time.fires("load")[0]))
        assert [(link.step, link.job_id, link.words) for link in links] == [
            (1, "extract", "succeeded"),
            (2, "load", "succeeded"),
            (3, "clean_up", "succeeded"),
            (3, "report", "succeeded"),
        ]
        assert {link.fire.due_at for link in links if link.fire} == {time.fires("extract")[0].due_at}
        text = explained(time, "report")
        assert "It is part of a chain: extract succeeded at" in text
        assert "→ load succeeded at" in text


def test_a_child_that_did_not_run_names_the_parent_and_its_fate() -> None:
    with virtual(scheduler(broken=True)) as time:
        time.advance(hours=1, minutes=1)
        [parent] = time.fires("load")
        assert f"it runs after {parent.key}, which failed at" in explained(time, "report")
        assert "report was skipped at" in explained(time, "extract")


def test_a_child_whose_parents_had_nothing_to_do_then_says_so() -> None:
    with virtual(scheduler()) as time:
        time.advance(hours=1, minutes=1)
        begin = time.fires("extract")[0].due_at
        text = explained(time, "load", (begin + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ"))
        assert "Nothing was due then: it follows extract, which had no fire then." in text


def test_a_manual_fire_in_the_middle_of_a_chain_stands_alone() -> None:
    with virtual(scheduler()) as time:
        time.trigger("clean_up")
        time.advance(seconds=5)
        assert "chain" not in explained(time, "clean_up")
        time.trigger("extract")
        time.advance(seconds=5)
        assert "load succeeded at" in explained(time, "extract")


def test_a_job_alone_is_in_no_chain() -> None:
    alone = Scheduler("memory://")
    alone.job(every(hours=1), id="alone")(lambda: None)
    with virtual(alone) as time:
        time.advance(hours=1, minutes=1)
        [record] = time.do(time.store.jobs(["alone"]))
        assert time.do(chain_of(time.store, record)) == []
        assert "chain" not in explained(time, "alone")


def test_a_child_that_never_ran_says_what_it_follows() -> None:
    with virtual(scheduler()) as time:
        time.advance(minutes=1)
        assert "it follows load." in explained(time, "report")


def test_a_circle_is_refused_where_it_is_written() -> None:
    circle = Scheduler("memory://")
    circle.job(after("three"), id="one")(lambda: None)
    circle.job(after("one"), id="two")(lambda: None)
    with pytest.raises(ConfigurationError, match="in a circle: three → one → two → three; take one after"):
        circle.job(after("two"), id="three")(lambda: None)


def load(folder: Path, *jobs: str) -> Scheduler:
    tables = [f'[jobs.{job}]\ncommand = ["true"]\n' if "=" not in job else job for job in jobs]
    path = folder / "fencepost.toml"
    path.write_text("\n".join(['store = "memory://"', *tables]))
    return scheduler_from(path)


def test_a_job_file_says_what_a_job_follows(tmp_path: Path) -> None:
    scheduler = load(
        tmp_path,
        "extract",
        'every = "1h"\n[jobs.load]\ncommand = ["true"]\nafter = "extract"',
        '[jobs.report]\ncommand = ["true"]\nafter = ["extract", "load"]\non = "ended"\npriority = -5',
    )
    assert scheduler.jobs["load"].trigger == After(("extract",))
    assert scheduler.jobs["report"].trigger == After(("extract", "load"), "ended")
    assert scheduler.jobs["report"].priority == -5


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("after = 5", "after must be a text, not 5"),
        ('after = "extract"\non = "failed"', 'use on="succeeded" or on="ended"'),
        ('every = "1h"\non = "ended"', "on does not go with every"),
        ('after = "load"', "in a circle: load → load"),
        ("after = []", "names 1 to 20 different jobs"),
    ],
)
def test_what_a_job_file_may_not_say_of_chains(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, "load", line)
    assert says in str(raised.value)


def test_a_wide_and_long_chain_is_read_once() -> None:
    """Two jobs in each of twenty steps, each after both before it: a million ways through it."""
    ladder = Scheduler("memory://")
    for side in "ab":
        ladder.job(every(hours=1), id=f"s00{side}")(lambda: None)
    for step in range(1, 20):
        for side in "ab":
            ladder.job(after(f"s{step - 1:02}a", f"s{step - 1:02}b"), id=f"s{step:02}{side}")(lambda: None)
    with virtual(ladder) as time:
        time.advance(hours=1, minutes=1)
        [record] = time.do(time.store.jobs(["s10a"]))
        links = time.do(chain_of(time.store, record))
        assert [link.step for link in links] == [1 + number // 2 for number in range(40)]
        assert len(time.ran("s19b")) == 1


def test_a_former_parent_is_in_no_chain() -> None:
    scheduler = Scheduler("memory://")
    scheduler.job(every(hours=1), id="former")(lambda: None)
    scheduler.job(every(hours=1), id="other")(lambda: None)
    scheduler.job(after("former"), id="child")(lambda: None)
    scheduler.job(after("child"), id="last")(lambda: None)
    with virtual(scheduler) as time:
        time.advance(minutes=1)
        time.do(time.store.put_jobs([PutJob(Job("child", "child", After(("other",))), source="api")]))
        former, child = time.do(time.store.jobs(["former", "child"]))
        assert time.do(chain_of(time.store, former)) == []
        assert [link.job_id for link in time.do(chain_of(time.store, child))] == ["other", "child", "last"]
