"""Runs a command and ends it when the replica that started it is gone, however that ended.

Started as a script of its own, so it imports next to nothing: `keeper.py COMMAND WORD…`. Standard input is a pipe
from the replica; when it closes, everything in this process group is killed.
"""

import _thread
import os
import signal
import sys


def _watch(pipe: int) -> None:
    while os.read(pipe, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    pipe = os.dup(0)
    os.set_inheritable(pipe, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
    except OSError as error:
        is_path = "/" in sys.argv[1]  # a file that is there names an interpreter that is not
        missing = isinstance(error, FileNotFoundError) and not (is_path and os.path.lexists(sys.argv[1]))
        reason = "command not found" if missing else f"cannot be run ({error.strerror})"
        os.write(1, f"{reason}: {sys.argv[1]}\n".encode(errors="replace"))
        os._exit(127 if missing else 126)
    _thread.start_new_thread(_watch, (pipe,))
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # the whole group gets the signal: the command decides when it ends
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
