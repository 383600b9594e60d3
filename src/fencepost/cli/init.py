"""`fencepost init`: a first app.py, or a first fencepost.toml."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fencepost.cli.output import say
from fencepost.errors import ConfigurationError, UsageError

APP = """\
from fencepost import Scheduler, every

scheduler = Scheduler(store="sqlite:///fencepost.db")


@scheduler.job(every(seconds=10))
def hello():
    print("hello")


if __name__ == "__main__":
    scheduler.run()
"""

JOB_FILE = """\
store = "sqlite:///fencepost.db"

[jobs.hello]
command = ["echo", "hello"]
every = "10s"
"""

NEXT = """\
Written to {file}. Next:
  fencepost run {target}         starts a replica; start it again in another terminal, and every fire still runs once
  fencepost status {target}      shows who leads and how the job stands
  fencepost fires {target}       shows what ran"""


@click.command()
@click.argument(
    "file", type=click.Path(path_type=Path), default="app.py", metavar="[app.py | fencepost.toml]"
)
def init(file: Path) -> None:
    """Write a first app.py, or with that name a first fencepost.toml. Nothing is overwritten."""
    if file.name == "fencepost.toml":
        text, target = JOB_FILE, str(file)
    elif file.suffix == ".py" and file.stem.isidentifier():
        text, target = APP, f"{file.stem}:scheduler"
    else:
        raise UsageError(f"{file}: name a Python file such as app.py, or fencepost.toml")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        raise UsageError(f"{file} exists, and nothing is overwritten; name a new file") from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}; name another place") from None
    with open(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    say(NEXT.format(file=file, target=target))
