"""`python -m stop_sync.demo.actor service`: a module of the example that ends with the demo, however that ends."""

from __future__ import annotations

import runpy
import signal
import sys

from fencepost.demo.diary import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # unless the module has its own way to end
    del sys.argv[0]
    runpy.run_module(f"stop_sync.{sys.argv[0]}", run_name="__main__", alter_sys=True)
