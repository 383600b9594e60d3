"""What the shell completes: targets, job ids, keys of fires.

Completion must not be noticed when it fails: any error gives no suggestions, the store has little time to answer and is
never created, and code is not imported to find out what it holds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fencepost.insight.existence import must_exist
from fencepost.insight.fires import find_fires
from fencepost.scheduler.scheduler import Scheduler
from fencepost.store.base import JobPage, Store

PATIENCE_SECONDS = 1.0
MOST = 200
"""Suggestions; a shell shows no more."""
MOST_FILES = 50
MOST_BYTES = 200_000
SCHEDULER = re.compile(
    r"""^(\w+)\s*(?::[^=\n]+)?=\s*(?:\w+\.)*Scheduler\((?:[^()]{0,300}?\bstore\s*=\s*["']([^"'\n]+)["'])?""",
    re.MULTILINE,
)
"""`scheduler = Scheduler(store="sqlite:///app.db")`: its name, and its store where that is written there."""

Ask = Callable[[Store], Awaitable[list[str]]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(*needed: str) -> Complete:
    """For the words of a command: `[TARGET]`, then those that it needs."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        words = context.params.get("words") or ()
        return _quietly(lambda: _suggested(needed, words, context.params, incomplete))

    return complete


def targets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`app:scheduler` of the files here, and `fencepost.toml`."""
    return _quietly(lambda: _starting(_targets(), incomplete))


def jobs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the store's jobs: for `--job ID`."""
    return _quietly(lambda: _starting(_job_ids(context.params, None, incomplete), incomplete))


def _suggested(
    needed: tuple[str, ...], words: tuple[str, ...], params: dict[str, Any], incomplete: str
) -> list[CompletionItem]:
    after_target = bool(words) and _is_target(words[0])
    position = len(words) - after_target
    found: list[str] = []
    if not words:
        found += _targets()
    wanted = needed[position].strip("[]") if position < len(needed) else ""
    if wanted in ("JOB", "ID"):
        found += _job_ids(params, words[0] if after_target else None, incomplete)
    elif wanted == "KEY":
        found += _keys(params, words[0] if after_target else None)
    return _starting(found, incomplete)


def _quietly(suggest: Callable[[], list[CompletionItem]]) -> list[CompletionItem]:
    """No suggestion is better than a traceback in the middle of a command line."""
    try:
        return suggest()
    except (Exception, SystemExit):
        return []


def _starting(found: Iterable[str], incomplete: str) -> list[CompletionItem]:
    chosen = [text for text in dict.fromkeys(found) if text.startswith(incomplete)]
    return [CompletionItem(text) for text in chosen[:MOST]]


def _is_target(word: str) -> bool:
    return word.endswith(".toml") or word in _targets()


def _targets() -> dict[str, str]:
    """The targets here, and the stores that they name. Read, not imported: a module may do anything when it is."""
    here = Path.cwd()
    found = {"fencepost.toml": ""} if (here / "fencepost.toml").is_file() else {}
    for path in sorted(here.glob("*.py"))[:MOST_FILES]:
        if path.is_file():
            with path.open("rb") as file:
                text = file.read(MOST_BYTES).decode("utf-8", "replace")
            found |= {f"{path.stem}:{name}": store for name, store in SCHEDULER.findall(text)}
    return found


def _job_ids(params: dict[str, Any], target: str | None, incomplete: str) -> list[str]:
    async def ids(store: Store) -> list[str]:
        return [job.id for job in await store.jobs(page=JobPage(MOST, contains=incomplete))]

    return _asked(ids, params, target)


def _keys(params: dict[str, Any], target: str | None) -> list[str]:
    async def keys(store: Store) -> list[str]:
        return [fire.key for fire in await find_fires(store, limit=MOST)]

    return _asked(keys, params, target)


def _asked(ask: Ask, params: dict[str, Any], target: str | None) -> list[str]:
    """Of the store that the command would use."""
    target = target or params.get("target")
    folder = Path(target).parent if target and target.endswith(".toml") else None
    url = params.get("url") or _targets().get(target or "") or None
    scheduler = Scheduler(store=url, namespace=params.get("namespace"), directory=folder)
    store = scheduler.store
    must_exist(store, scheduler.store_name, target)

    async def session() -> list[str]:
        store.creates = False
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await store.open()
                return await ask(store)
        finally:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await store.close()

    return asyncio.run(session())
