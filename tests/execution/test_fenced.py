"""`fire.fenced(connection)`: one effect, in every kind of database, at home and elsewhere."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from fencepost import (
    ConfigurationError,
    EffectCommitted,
    FencedOut,
    Fire,
    Retry,
    RunCancelled,
    Scheduler,
    UsageError,
    every,
)
from fencepost.store.base import GiveBack
from tests.unit.apps.waiting import eventually


class Sqlite:
    """A database that a test connects to; with `store`, the scheduler lives there as well."""

    mark = "?"

    def __init__(self, tmp_path):
        self.file = tmp_path / "app.db"
        self.store = f"sqlite:///{self.file}"

    def connect(self, **options):
        connection = sqlite3.connect(self.file, **options)
        if options.get("isolation_level", "") is not None:
            connection.row_factory = sqlite3.Row
        return connection


class Postgres:
    mark = "%s"

    def __init__(self, url):
        self.store = url

    def connect(self, **options):
        return psycopg.connect(self.store, row_factory=dict_row, **options)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    made = (
        Sqlite(tmp_path) if request.param == "sqlite" else Postgres(request.getfixturevalue("postgres_url"))
    )
    with closing(made.connect()) as connection:
        connection.execute("create table bills (n integer)")
        connection.commit()
    return made


@pytest.fixture
def connection(database):
    with closing(database.connect()) as connection:
        yield connection


def bills(database):
    with closing(database.connect()) as connection:
        rows = connection.execute("select n from bills order by n").fetchall()
    return [row["n"] for row in rows]


def bill(connection, n=1):
    connection.execute(f"insert into bills values ({n})")


def pay(fire, connection, n=1, then=lambda: None):
    with fire.fenced(connection):
        bill(connection, n)
        then()


def fail():
    raise ZeroDivisionError


# --- elsewhere: the first commit wins -----------------------------------------------------------------------


def test_the_first_commit_wins_and_a_later_attempt_is_told(database, connection):
    with Fire.fake(token=1).fenced(connection) as same:
        assert same is connection
        bill(connection)
    assert bills(database) == [1]
    with (
        pytest.raises(EffectCommitted, match="by an earlier attempt"),
        Fire.fake(token=2).fenced(connection),
    ):
        raise AssertionError("it must not come so far")
    assert bills(database) == [1]


def test_an_exception_rolls_back_and_the_effect_may_be_tried_again(database, connection):
    with pytest.raises(ZeroDivisionError):
        pay(Fire.fake(), connection, then=fail)
    assert bills(database) == []
    pay(Fire.fake(token=2), connection)
    assert bills(database) == [1]


def test_several_effects_of_a_fire_have_names(database, connection):
    fire = Fire.fake()
    for n, name in enumerate(["invoice", "mail"]):
        with fire.fenced(connection, name=name):
            bill(connection, n)
    with pytest.raises(UsageError, match="give each its own name"):
        fire.fenced(connection, name="mail").__enter__()
    with pytest.raises(EffectCommitted, match="'mail'"), Fire.fake(token=2).fenced(connection, name="mail"):
        pass
    assert bills(database) == [0, 1]


def test_other_fires_are_other_effects(database, connection):
    for n, job in enumerate(["a", "b"]):
        with Fire.fake(job_id=job).fenced(connection):
            bill(connection, n)
    assert bills(database) == [0, 1]


def test_two_that_are_at_work_together_commit_once(database):
    """The zombie and the run that took its place, each inside of its block."""
    at_work, outcomes = threading.Barrier(2, timeout=60), []

    def attempt(token):
        with closing(database.connect()) as connection:
            try:
                if database.mark == "?":
                    at_work.wait()  # only one is let in
                with Fire.fake(token=token).fenced(connection):
                    bill(connection)
                    if database.mark == "%s":
                        at_work.wait()
                outcomes.append("committed")
            except EffectCommitted:
                outcomes.append("too late")

    threads = [threading.Thread(target=attempt, args=[token]) for token in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["committed", "too late"]
    assert bills(database) == [1]


def test_many_at_once_may_be_the_first_who_need_the_table(database):
    ready, failed = threading.Barrier(6, timeout=60), []

    def attempt(number):
        with closing(database.connect()) as connection:
            ready.wait()
            try:
                with Fire.fake(job_id=f"job{number}").fenced(connection):
                    bill(connection, number)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=attempt, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert bills(database) == list(range(6))


def test_a_transaction_that_is_open_is_refused(database, connection):
    bill(connection)
    with (
        pytest.raises(UsageError, match="a transaction is open on this connection"),
        Fire.fake().fenced(connection),
    ):
        pass
    connection.rollback()
    assert bills(database) == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_ending_the_transaction_inside_of_it_is_refused(database, connection, end):
    def end_and_go_on():
        getattr(connection, end)()
        bill(connection, 2)

    with pytest.raises((UsageError, psycopg.ProgrammingError)):
        pay(Fire.fake(), connection, then=end_and_go_on)
    assert 2 not in bills(database)
    if end == "rollback":
        assert bills(database) == []
    assert not getattr(connection, "in_transaction", False)


def test_a_connection_in_autocommit_works_as_well(database):
    options = {"isolation_level": None} if database.mark == "?" else {"autocommit": True}
    with closing(database.connect(**options)) as connection:
        pay(Fire.fake(), connection)
        with pytest.raises(ZeroDivisionError):
            pay(Fire.fake(job_id="other"), connection, 2, then=fail)
    assert bills(database) == [1]


def test_a_run_that_was_told_to_end_commits_nothing(database, connection):
    cancelled, gone = Fire.fake(), Fire.fake()
    cancelled.cancel()
    with pytest.raises(RunCancelled):
        pay(cancelled, connection)
    with pytest.raises(FencedOut):
        pay(gone, connection, then=gone.fence)
    assert bills(database) == []


def test_old_effects_are_forgotten_a_few_at_a_time(database, connection):
    with Fire.fake(job_id="first").fenced(connection):
        pass
    old = "datetime('now', '-400 days')" if database.mark == "?" else "now() - interval '400 days'"
    for n in range(25):
        connection.execute(
            "insert into fencepost_effects (namespace, fire_key, name, token, committed_at)"
            f" values ('default', 'old{n}', '', 1, {old})"
        )
    connection.commit()
    for n in range(3):
        with Fire.fake(job_id=f"new{n}").fenced(connection):
            pass
    rows = connection.execute("select fire_key as n from fencepost_effects").fetchall()
    assert sorted(row["n"].partition("@")[0] for row in rows) == ["first", "new0", "new1", "new2"]


def test_what_cannot_be_fenced_is_refused_with_the_remedy():
    with pytest.raises(UsageError, match="give one of sqlite3 or psycopg 3"):
        Fire.fake().fenced(object())


async def test_an_async_connection(postgres_url):
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("create table bills (n integer)")
        await connection.commit()

        async def pay(fire, n, then=lambda: None):
            async with fire.fenced(connection) as same:
                await same.execute("insert into bills values (%s)", [n])
                then()

        await pay(Fire.fake(), 1)
        with pytest.raises(EffectCommitted):
            await pay(Fire.fake(token=2), 2)
        with pytest.raises(ZeroDivisionError):
            await pay(Fire.fake(job_id="other"), 3, then=fail)
        rows = await (await connection.execute("select n from bills")).fetchall()
    assert rows == [(1,)]


# --- at home: the token is checked as well --------------------------------------------------------------------


@pytest.fixture
async def scheduler(database):
    scheduler = Scheduler(
        store=database.store, run_ttl="2s", leader_ttl="2s", heartbeat="0.5s", drain_timeout="1s"
    )
    yield scheduler
    await scheduler.stop()


async def test_an_effect_in_the_stores_own_database(database, scheduler):
    @scheduler.task
    def pay(fire):
        with closing(database.connect()) as connection, fire.fenced(connection):
            bill(connection)

    async with scheduler:
        handle = await scheduler.trigger(pay)
        fire = await handle.wait(timeout=60)
    assert (fire.state, fire.reason) == ("succeeded", None)
    assert bills(database) == [1]


async def test_a_retry_does_not_pay_twice_and_one_that_says_so_does(database, scheduler):
    """The run failed after it had paid. Whoever retries it, and however often, repeats the rest alone."""
    seen = []

    @scheduler.task
    def pay(fire, fails=True):
        seen.append((fire.due_at, fire.effect_key))
        with closing(database.connect()) as connection, fire.fenced(connection):
            bill(connection)
        if fails:
            fail()

    async with scheduler:
        first = await (await scheduler.trigger(pay)).wait(timeout=60)
        both = [await scheduler.retry(first.key) for _ in range(2)]
        retried = [await handle.wait(timeout=60) for handle in both]
        chained = await (await scheduler.retry(retried[0].key, again=True)).wait(timeout=60)
    assert (first.state, chained.state) == ("failed", "failed")
    assert [(fire.state, fire.reason) for fire in retried] == [("succeeded", "effect already committed")] * 2
    assert [fire.retry_of for fire in retried] == [first.key] * 2
    assert len({fire.key for fire in (first, *retried, chained)}) == 4
    assert seen == [(first.due_at, first.key)] * 3 + [(first.due_at, chained.key)]
    assert bills(database) == [1, 1]  # the first, and the one that said again


async def test_a_token_that_is_not_current_commits_nothing(database):
    """The store takes the fire away while the body is at work: at the start of the block, and inside of it. The replica
    cannot notice it first: its control loop is held until the body has tried."""
    scheduler = Scheduler(store=database.store)
    inside, go_on, tried, told = threading.Event(), threading.Event(), threading.Event(), []

    @scheduler.task
    def pay(fire):
        if fire.record.attempts:
            return  # somebody else's turn
        with closing(database.connect()) as connection:
            try:
                if database.mark == "%s":  # SQLite's store cannot write while the block is open
                    with fire.fenced(connection, name="inside"):
                        bill(connection)
                        inside.set()
                        go_on.wait(60)
                else:
                    inside.set()
                    go_on.wait(60)
                    with fire.fenced(connection):
                        bill(connection)
            except FencedOut as error:
                told.append(str(error))
            finally:
                tried.set()
            with fire.fenced(connection):
                bill(connection)

    async def take_away(held):
        reply = await scheduler.store.update_claims(held.replica, [GiveBack(held.key, held.token)])
        go_on.set()
        assert tried.wait(60)
        return reply

    async with scheduler:
        handle = await scheduler.trigger(pay)
        await eventually(inside.is_set)
        held = await handle.record()
        assert (await scheduler.ask(take_away(held))).accepted == (True,)
        fire = await handle.wait(timeout=60)
    assert fire.state == "succeeded"
    assert fire.token > held.token
    assert bills(database) == []
    assert [line.partition(" is ")[2] for line in told] == ["not current any more; nothing was committed"]


async def test_an_effect_that_an_earlier_attempt_committed_ends_the_run_as_succeeded(database, scheduler):
    @scheduler.job(every(days=300), retry=Retry(attempts=3, first=0.1), id="pay")
    def pay(fire):
        with closing(database.connect()) as connection, fire.fenced(connection):
            bill(connection, fire.attempt)
        raise OSError("it has paid, and breaks before anybody hears of it")

    async with scheduler:
        handle = await scheduler.trigger("pay")
        fire = await handle.wait(timeout=60)
    assert (fire.state, fire.reason, fire.attempt) == ("succeeded", "effect already committed", 2)
    assert bills(database) == [1]


@pytest.mark.parametrize("executor", [None, "process"])
async def test_one_of_several_effects_says_nothing_of_the_others(database, scheduler, executor):
    """Who lets it pass has not done the rest: the run must not count as succeeded."""
    retry, args = Retry(attempts=2, first=0.1), {"store": database.store}
    scheduler.job(every(days=300), retry=retry, args=args, id="pay", executor=executor)(pay_twice)

    async with scheduler:
        handle = await scheduler.trigger("pay")
        fire = await handle.wait(timeout=60)
    assert (fire.state, fire.attempt) == ("failed", 2)
    assert "'invoice' was committed by an earlier attempt; catch EffectCommitted" in fire.error
    assert bills(database) == [1]


def pay_twice(fire, store):
    opened = (
        psycopg.connect(store)
        if store.startswith("postgres")
        else sqlite3.connect(store.removeprefix("sqlite:///"))
    )
    with closing(opened) as connection:
        with fire.fenced(connection, name="invoice"):
            bill(connection, fire.attempt)
        raise OSError("it breaks before the mail")


def test_a_search_path_set_inside_the_block_leads_to_no_other_table(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table bills (n integer)")
        connection.execute('create schema "Tenant"')
        connection.commit()

        def move():
            connection.execute('set search_path = "Tenant"')

        pay(Fire.fake(), connection, then=move)
        connection.execute("reset search_path")
        connection.commit()
        with pytest.raises(EffectCommitted):
            pay(Fire.fake(token=2), connection, then=move)


@pytest.fixture
def role(postgres_url):
    """A connection of a role of its own, which may do nothing but pay."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("create table bills (n integer)")
        admin.execute("create role payer login")
        try:
            admin.execute("grant insert, select on bills to payer")
            admin.execute("revoke create on schema public from public")
            with psycopg.connect(postgres_url, user="payer") as connection:
                yield admin, connection
        finally:
            admin.execute("drop owned by payer")
            admin.execute("drop role payer")


async def test_a_role_that_may_not_create_the_table_is_told_what_to_do(postgres_url, role):
    admin, connection = role
    with pytest.raises(
        ConfigurationError, match="let an administrator create it once, as docs/execution.md shows"
    ):
        pay(Fire.fake(), connection)
    page = (Path(__file__).parents[2] / "docs" / "execution.md").read_text()
    admin.execute(page.partition("```sql")[2].partition("```")[0])
    admin.execute("grant select, insert, update, delete on fencepost_effects to payer")
    pay(Fire.fake(), connection)
    with pytest.raises(EffectCommitted):
        pay(Fire.fake(token=2), connection)


async def test_a_role_that_may_not_look_at_the_store_is_treated_as_elsewhere(postgres_url, role):
    _, connection = role
    with psycopg.connect(postgres_url) as owner:  # makes the table
        with Fire.fake(job_id="first").fenced(owner):
            pass
        owner.execute("grant select, insert, update, delete on fencepost_effects to payer")
    scheduler = Scheduler(store=postgres_url)

    @scheduler.task(id="pays")
    def pays(fire):
        pay(fire, connection)

    async with scheduler:
        fire = await (await scheduler.trigger("pays")).wait(timeout=60)
    assert (fire.state, fire.error) == ("succeeded", None)


async def test_reports_and_heartbeats_go_on_while_a_block_is_open(postgres_url):
    """The settler must not wait for a transaction of the user's, however long that takes."""
    database = Postgres(postgres_url)
    with closing(database.connect()) as connection:
        connection.execute("create table bills (n integer)")
        connection.commit()
    scheduler = Scheduler(store=database.store, run_ttl="2s", leader_ttl="2s", heartbeat="0.5s")
    open_, go_on = asyncio.Event(), asyncio.Event()

    @scheduler.task
    async def slow(fire):
        connecting = psycopg.AsyncConnection.connect(database.store)
        async with await connecting as connection, fire.fenced(connection):
            await connection.execute("insert into bills values (1)")
            fire.report(done=1, total=2)
            open_.set()
            await go_on.wait()

    @scheduler.task
    async def quick():
        return

    async with scheduler:
        handle = await scheduler.trigger(slow)
        await open_.wait()
        other = await scheduler.trigger(quick)
        assert (await other.wait(timeout=60)).state == "succeeded"
        for _ in range(300):
            if (await handle.record()).progress:
                break
            await asyncio.sleep(0.01)
        assert (await handle.record()).progress["done"] == 1
        go_on.set()
        assert (await handle.wait(timeout=60)).state == "succeeded"
    assert bills(database) == [1]
