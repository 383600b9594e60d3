"""Functions that run in processes of their own."""

from __future__ import annotations

import os
import time

from fencepost import Fire, current_fire


def note_pid(fire: Fire, path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {fire.key} {fire.token} {current_fire() is fire}\n")


async def step_by_step(fire: Fire, path: str) -> None:
    await fire.save({"step": 1})
    fire.report(done=1, total=2, message="half")
    with open(path, "w") as file:
        file.write(f"{fire.checkpoint} {fire.fenced_out}")


def fail() -> None:
    raise KeyError("no such thing")


def spin_for_ever(path: str) -> None:
    """Holds the GIL: a thread could not be ended, and would delay everybody."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass


def sleep_for_ever(path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    try:
        time.sleep(600)
    finally:
        with open(f"{path}.cleaned", "w") as file:
            file.write("yes")


def kill_myself() -> None:
    os.kill(os.getpid(), 9)
