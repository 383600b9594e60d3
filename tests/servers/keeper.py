"""The program beside each private server. It ends the server when we are gone, whatever became of us.

    python -I -S keeper.py FOLDER

We hold the other end of its standard input, and the system closes that end when we die, even by kill -9. Then, or when
it reads `end`, the keeper ends the server, removes its folder, and ends too. (Linux could have the server killed with
its parent, by PR_SET_PDEATHSIG. That means the parent *thread*: a server started on a thread that ends would end with
it.)

A line on its standard input, `{"command": [...], "env": {...}, "user": null, "signal": 9}`, starts the server. It
answers with the pid, and with `ended` when the server and every process that it forked have ended: a PostgreSQL
whose first process was killed cannot be started before all are gone. It knows by a second pipe, of which all of them
inherit one end. What the server writes goes to the keeper's standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
from typing import Any

PATIENCE = 5.0


def main() -> None:
    folder = sys.argv[1]
    requests = io.FileIO(0)
    while (line := requests.readline()).startswith(b"{"):
        keep(json.loads(line), folder)
    shutil.rmtree(folder, ignore_errors=True)


def keep(spec: dict[str, Any], folder: str) -> None:
    all_ended, held_by_all = os.pipe()
    try:
        server = subprocess.Popen(
            spec["command"],
            env=spec["env"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=[held_by_all],
            **identity(spec["user"]),
        )
    except OSError as error:
        os.close(held_by_all)
        print(error, file=sys.stderr, flush=True)
        answer(0)
    else:
        os.close(held_by_all)
        answer(server.pid)
        wait(server, all_ended, spec["signal"])
    os.close(all_ended)
    answer("ended")


def wait(server: subprocess.Popen[bytes], all_ended: int, signal: int) -> None:
    """Nothing is asked while it runs. If something comes nevertheless, it is the end."""
    readable, _, _ = select.select([0, all_ended], [], [])
    if all_ended not in readable:
        server.send_signal(signal)
        if not select.select([all_ended], [], [], PATIENCE)[0]:
            server.kill()
    server.wait()


def answer(what: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody is left to hear it
        os.write(1, f"{what}\n".encode())


def identity(user: int | None) -> dict[str, Any]:
    """For `subprocess`: run as that user, in that user's group only."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


if __name__ == "__main__":
    main()
