"""The words of the source: one for each concept, and plain English in what people read.

Names, docstrings and messages (`raise`, logs, what commands print) are read from the syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import fencepost

SOURCE = Path(fencepost.__file__).parent

INSTEAD = {
    "beat": "heartbeat",
    "beats": "heartbeats",
    "pulse": "the reply to a heartbeat",
    "testimony": "data-loss detector",
    "reign": "definition period",
    "roll": "registry",
    "shelf": "job store",
    "shelves": "job stores",
    "told": "format, wrap, print, notify",
    "look": "check, poll, sample, read, preflight",
    "looks": "checks, polls, samples, reads",
    "looked": "checked, polled, sampled, read",
    "looking": "checking, polling, sampling, reading",
    "nobody": "name who: no replica, no caller",
    "somebody": "name who: another replica, a person",
    "someone": "name who: another replica, a person",
    "whoever": "name who: the caller, the replica that",
}
"""In names. `look_at` is a look; of a lookup, and of a rollback, the field speaks as of one word."""
PATHS = {"plain": "fast path", "careful": "general path"}
"""In names of the store, where they would be names of a way through it. Elsewhere text may be plain."""
IN_PROSE = ("nobody", "somebody", "whoever", "testimony", "reign", "shelf", "shelves", "pulse")
"""In messages and docstrings. The others have uses of their own in a sentence: `it is told by`, `look at the log`."""
MESSAGES = {"debug", "info", "warning", "error", "exception", "critical", "log", "echo", "print", "say"}
"""Functions and methods that show what they are given to a person."""

CONTRACT = {
    "Kind": "`beat` is a kind of the live events",
    "UnreadableRow.told": "a field of the API's JSON",
    "OriginModel.told": "a field of the API's JSON",
    "BeatEntry": "Celery's scheduler is called beat",
    "read_beat": "Celery's scheduler is called beat",
}
"""Names that others rely on, or that are not ours, and why."""
CELERY = {"cli/migrate/beat.py", "cli/migrate/django_celery_beat.py"}
"""Files about Celery's scheduler, which is called beat."""
FIELDS_OF_ROWS = {
    "model/replicas.py": {"beat_no"},
    "model/fires.py": {"beats"},
    "store/base.py": {"beats"},
}
"""Fields that are stored under their names, which the codec of store/ reads: paid with a stored format of their own.
That of base.py is `Missing.beats`, which stores of other authors read."""

TWICE = {
    "Command": "Django finds the class of a management command by this name",
    "Scheduler": "the model that carries Django's permissions; its name is in theirs",
}
"""Class names that mean two things, because others rely on both."""


@cache
def texts() -> dict[str, str]:
    return {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def trees(words: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    """Of the files that may have one of these words: to parse all of them takes seconds."""
    pattern = re.compile("|".join(words), re.IGNORECASE)
    for file, text in texts().items():
        if pattern.search(text):
            yield file, ast.parse(text)


def words_of(name: str) -> list[str]:
    """`LOOK_EVERY`, `looked_at`, `LimitLook`: their words in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What the file itself names: modules, classes, functions, parameters, variables, attributes."""

    def walk(node: ast.AST, owner: str) -> Iterator[tuple[str, int]]:
        for each in ast.iter_child_nodes(node):
            name = ""
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = each.name
            elif isinstance(each, ast.arg):
                name = each.arg
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                name = each.id
            elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                name = each.attr
            if name and name not in CONTRACT and f"{owner}.{name}" not in CONTRACT:
                yield name, getattr(each, "lineno", 0)
            yield from walk(each, each.name if isinstance(each, ast.ClassDef) else owner)

    yield from walk(tree, "")


def prose_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What people read: docstrings, and the texts of errors, logs and commands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    yield str(each.value.value), each.lineno
        elif (isinstance(node, ast.Raise) and node.exc is not None) or is_message(node):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value, part.lineno


def is_message(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in MESSAGES or (bool(name) and name.endswith(("Error", "Unavailable", "Problem")))


def test_names_use_the_word_of_their_concept() -> None:
    found = []
    for file, tree in trees(INSTEAD):
        known = FIELDS_OF_ROWS.get(file, set())
        for name, line in names_in(tree):
            found += [
                f"{file}:{line}: {name}: instead of {word!r} {INSTEAD[word]}"
                for word in words_of(name)
                if word in INSTEAD and name not in known
            ]
    assert not found, "\n".join(found)


def test_files_use_the_word_of_their_concept() -> None:
    files = [Path(file) for file in texts() if file not in CELERY]
    assert not [file for file in files if set(words_of(file.stem)) & INSTEAD.keys()]


def test_the_ways_through_the_store_have_one_name_each() -> None:
    """`store/rules/fast_path.py` says which they are."""
    found = {
        file
        for file, tree in trees(PATHS)
        if file.startswith("store/")
        for name, _ in names_in(tree)
        if not PATHS.keys().isdisjoint(words_of(name))
    }
    assert not found


def test_messages_and_docstrings_name_the_actor() -> None:
    pattern = re.compile(rf"\b({'|'.join(IN_PROSE)})\b", re.IGNORECASE)
    found = [
        f"{file}:{line}: {match[0]!r} in {text.strip()[:100]!r}"
        for file, tree in trees(IN_PROSE)
        for text, line in prose_in(tree)
        if (match := pattern.search(text))
    ]
    assert not found, "\n".join(found)


def test_a_class_name_means_one_thing() -> None:
    classes: dict[str, set[str]] = defaultdict(set)
    for file, text in texts().items():
        for name in re.findall(r"(?m)^\s*class (\w+)[(:]", text):
            classes[name].add(file)
    twice = {name: sorted(files) for name, files in classes.items() if len(files) > 1}
    new = {name: files for name, files in twice.items() if name not in TWICE}
    assert not new, new
    paid = TWICE.keys() - twice.keys()
    assert not paid, f"each of these means one thing now: take them out of the list: {sorted(paid)}"


def test_a_wrong_word_is_noticed() -> None:
    tree = ast.parse(
        'class LimitLook:\n    def told_once(self, beat):\n        raise ValueError("nobody has it")\n'
    )
    assert [name for name, _ in names_in(tree) if set(words_of(name)) & INSTEAD.keys()] == [
        "LimitLook",
        "told_once",
        "beat",
    ]
    assert "nobody has it" in [text for text, _ in prose_in(tree)]
    assert words_of("lookup_job") == ["lookup", "job"]
    assert words_of("HEARTBEAT_SECONDS") == ["heartbeat", "seconds"]
