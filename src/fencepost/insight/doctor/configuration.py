"""The settings: where they come from, and whether they fit each other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from fencepost.errors import ConfigurationError
from fencepost.insight.doctor.finding import Finding, ok, warning
from fencepost.insight.doctor.subject import Subject
from fencepost.settings import Settings, sources, variable_hint


def configuration(scheduler: Subject, directory: Path) -> Iterator[Finding]:
    """`directory`: where the settings file is searched for. Values are not shown: some of them are secrets."""
    found = sources(directory=directory)
    yield ok(f"settings file: {found.file}" if found.file else "settings file: none")
    yield ok(f"variables: {', '.join(found.variables) or 'none'}")
    for name in found.unknown:
        hint = variable_hint(name).removeprefix("; ")
        yield warning(f"{name} is not a variable of ours, and is ignored", hint or "take it away")
    yield from _given_otherwise(scheduler.settings, directory, found.variables)
    yield ok("the settings fit each other")
    for text in scheduler.settings.warnings():
        what, _, remedy = text.partition(". ")
        yield warning(what, remedy)
    yield ok(f"store {scheduler.store_name}, namespace {scheduler.settings.namespace}")


def _given_otherwise(settings: Settings, directory: Path, variables: Iterable[str]) -> Iterator[Finding]:
    """Code and the command line take precedence: a file or a variable with another value then has no effect."""
    try:
        elsewhere = Settings.load(directory=directory, env={name: os.environ[name] for name in variables})
    except ConfigurationError as error:
        yield warning(f"only code or the command line makes up for a mistake: {error}", "correct it")
        return
    differing = [
        field.name
        for field in fields(Settings)
        if getattr(settings, field.name) != getattr(elsewhere, field.name)
    ]
    if differing:
        yield ok(f"decided in code or on the command line: {', '.join(differing)}")
