"""A rolling deploy under load, and the count of what was lost: `python -m rolling_deploy --help`."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from rolling_deploy.deploy import Deploy, Result


def main() -> None:
    options = parsed()
    try:
        with server() as url, database(url) as empty, tempfile.TemporaryDirectory(prefix="deploy-") as folder:
            deploy = Deploy(
                empty,
                Path(folder),
                options.instances,
                options.workers,
                options.clients,
                signal.SIGKILL if options.kill else signal.SIGTERM,
            )
            result = asyncio.run(deploy.run())
    except KeyboardInterrupt:
        sys.exit(130)
    print(told(result))
    sys.exit(0 if result.clean else 1)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "rolling_deploy",
        description="Replace all instances of an application, one after the other, while requests and jobs go on.",
        epilog="DATABASE_URL names a PostgreSQL server where a database may be created; it is dropped at the end. "
        "Without it a private server is started.",
    )
    for name, default, most in (("--instances", 3, 8), ("--workers", 1, 8), ("--clients", 8, 50)):
        parser.add_argument(name, type=int, choices=range(1, most + 1), default=default, metavar=f"1..{most}")
    parser.add_argument(
        "--kill", action="store_true", help="kill -9 in place of SIGTERM, to see the difference"
    )
    return parser.parse_args()


@contextmanager
def server() -> Iterator[str]:
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    try:
        from tests.servers import postgres
    except ImportError:
        sys.exit("set DATABASE_URL, or run this at the top of a clone: its tests bring a PostgreSQL")
    print("Starting a private PostgreSQL ...", flush=True)
    with postgres() as private:
        yield private.url


@contextmanager
def database(url: str) -> Iterator[str]:
    """An empty one, dropped at the end."""
    name = f"rolling_deploy_{secrets.token_hex(4)}"
    quoted = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(quoted))
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(quoted))


def told(result: Result) -> str:
    traffic, account = result.traffic, result.account
    lines = [
        ("", "done", "lost", "twice"),
        ("requests", traffic.answered, traffic.failures.total(), "-"),
        ("fires", account.succeeded, account.lost_fires, account.doubled_fires),
        ("ticks", account.ticks, account.lost_ticks, account.doubled_ticks),
        ("messages", account.messages, account.lost_messages, account.doubled_messages),
        ("export steps", account.steps, "-", account.doubled_steps),
    ]
    table = [f"{name:<14}{done:>8}{lost:>8}{twice:>8}" for name, done, lost, twice in lines]
    notes = [
        f"Requests were answered by {len(traffic.pids)} processes, the slowest in {traffic.slowest:.2f} s.",
        f"{account.handed_over} exports were begun on one instance and ended on another.",
        *(f"Not run to its end: {fate}" for fate in account.fates[:5]),
        *(f"Failed {times} times: {what}" for what, times in traffic.failures.most_common(5)),
    ]
    return "\n".join(["", *table, "", *notes])


if __name__ == "__main__":
    main()
