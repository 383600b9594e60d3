"""Commands and settings in the documentation are such: every `fencepost …` line is parsed, though not carried out."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from fencepost.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
END = re.compile(r"\s+(?:#|&|\||>|<|;).*$|[;&|)].*$")
TARGETS = (ROOT / "Makefile").read_text(encoding="utf-8")


class Block(NamedTuple):
    page: str
    language: str
    text: str


BLOCKS = [
    Block(page.relative_to(ROOT).as_posix(), language, text)
    for page in PAGES
    for _, language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
]


def commands(language: str, text: str) -> Iterator[str]:
    """Lines that a person would type, each with what follows on lines that end in a backslash."""
    for line in text.replace("\\\n", " ").splitlines():
        typed = line.strip()
        if language == "console":
            if not typed.startswith("$ "):
                continue
            typed = typed.removeprefix("$ ")
        for part in re.split(r"\s(?:&&|\|\|)\s", typed):
            yield re.sub(r"^(?:[A-Z_]+=\S*\s+)+", "", part)


def check(words: list[str]) -> None:
    """Parse as the command line would, without carrying it out."""
    command: click.Command = cli
    context = click.Context(cli, info_name="fencepost")
    while isinstance(command, click.Group):
        context = command.make_context(command.name, words, parent=context)
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        _, found, words = command.resolve_command(context, rest)
        assert found is not None
        command = found
    command.make_context(command.name, words, parent=context).close()  # --tz holds until then


FENCEPOST = [
    (block.page, command)
    for block in BLOCKS
    if block.language in ("sh", "console", "bash")
    for command in commands(block.language, block.text)
    if re.match(r"fencepost(\s|$)", command)
]


@pytest.mark.parametrize(("page", "command"), FENCEPOST, ids=lambda value: value)
def test_it_is_a_command(page: str, command: str) -> None:
    words = shlex.split(END.sub("", command), comments=True)[1:]
    with contextlib.suppress(click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):  # --help, --version
        check([word for word in words if word not in ("…", "...")])


def test_targets_of_make_exist() -> None:
    typed = {
        word
        for block in BLOCKS
        if block.language in ("sh", "console")
        for command in commands(block.language, block.text)
        if command.startswith("make ")
        for word in shlex.split(command, comments=True)[1:]
        if re.fullmatch("[a-z-]+", word)
    }
    assert len(typed) > 2
    assert typed <= {
        word for line in re.findall(r"^([a-z][a-z -]*):", TARGETS, re.MULTILINE) for word in line.split()
    }


READERS: dict[str, Callable[[str], object]] = {
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "json": json.loads,
}


@pytest.mark.parametrize("language", READERS)
def test_data_can_be_read(language: str) -> None:
    some = [block for block in BLOCKS if block.language == language]
    assert some
    for block in some:
        try:
            READERS[language](block.text)
        except ValueError as error:
            raise AssertionError(f"{block.page}: {error}\n{block.text}") from error


def test_there_are_commands() -> None:
    assert len(FENCEPOST) > 100
