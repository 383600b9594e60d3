"""`python -m fencepost.cli.demo.child PARENT MODULE …`: a process of a demo, which ends with it, however it ends."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time


def end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=[int(sys.argv[1])], daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # unless the module handles it
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
