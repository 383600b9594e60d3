"""Tracebacks as people see them."""

from __future__ import annotations

from fencepost.insight.views.tracebacks import folded, without_repetition

ERROR = """Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/fencepost/runs/host.py", line 165, in _call
    result = entered(run.fire)
             ^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/site-packages/fencepost/runs/fire.py", line 250, in entered
    return function(**keywords)
  File "/home/ann/fencepost/app.py", line 25, in breaks
    raise RuntimeError("import failed") from e
  File "/usr/lib/python3/site-packages/fencepost/pipeline/run.py", line 3, in call
    call()
RuntimeError: import failed
"""


def test_our_own_frames_are_one_line_and_those_of_a_project_called_like_us_stay() -> None:
    assert folded(ERROR).splitlines() == [
        "Traceback (most recent call last):",
        "  … 2 frames of fencepost",
        '  File "/home/ann/fencepost/app.py", line 25, in breaks',
        '    raise RuntimeError("import failed") from e',
        "  … 1 frame of fencepost",
        "RuntimeError: import failed",
    ]


def test_what_is_no_traceback_passes_as_it_is() -> None:
    assert folded("exit code 3\n  disk full\n") == "exit code 3\n  disk full"


def test_the_traceback_that_ended_the_run_is_not_shown_with_its_output_again() -> None:
    other = 'Traceback (most recent call last):\n  File "/app.py", line 1, in f\n    f()\nKeyError: 7'
    output = f"begun\nERROR it failed\n{ERROR}{other}\ngoes on"
    assert (
        without_repetition(output, ERROR)
        == f"begun\nERROR it failed\nRuntimeError: import failed\n{other}\ngoes on"
    )
    assert without_repetition(output, None).count("Traceback") == 2
