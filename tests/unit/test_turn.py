"""The lock between processes: one at a time, handed over at once, and nobody waits for ever."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.errors import StoreUnavailable
from fencepost.store import turn as module
from fencepost.store.turn import Turn

PATIENCE = 5.0


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "turn"


@pytest.fixture
def standing() -> Callable[[], int]:
    """How many threads stand in line, apart from those that other tests have left there."""
    before = set(threading.enumerate())

    def count() -> int:
        return sum(thread.name == "fencepost-turn" for thread in set(threading.enumerate()) - before)

    return count


@contextmanager
def held_elsewhere(lock: Path) -> Iterator[int]:
    """By another open file, as another process would."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_free(lock: Path) -> bool:
    with lock.open("rb") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_it_is_held_inside_and_free_afterwards(lock: Path, standing: Callable[[], int]) -> None:
    turn = Turn(lock)
    for _ in range(2):
        with turn.taken():
            assert not is_free(lock)
        assert is_free(lock)
    assert standing() == 0, "who need not wait needs no thread"
    turn.let_go()


def test_who_waits_has_it_as_soon_as_it_is_free(lock: Path, standing: Callable[[], int]) -> None:
    """Ten turns, one after the other, each of them in somebody else's way."""
    order: list[int] = []

    def take(number: int, turn: Turn) -> None:
        with turn.taken():
            assert not is_free(lock)
            order.append(number)
        turn.let_go()

    with held_elsewhere(lock):
        threads = []
        for number in range(10):
            turn = Turn(lock)
            threads.append(threading.Thread(target=take, args=(number, turn)))
            threads[-1].start()
            eventually(lambda: waiting_in_kernel(lock) == len(threads))
        assert order == []
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(order) == list(range(10))
    eventually(lambda: standing() == 0)


def waiting_in_kernel(lock: Path) -> int:
    """A line of /proc/locks with an arrow is one that waits."""
    inode = f":{lock.stat().st_ino} "
    return sum(" -> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_nobody_waits_for_ever_and_who_comes_again_has_kept_the_place(
    lock: Path, standing: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    turn = Turn(lock)
    with held_elsewhere(lock):
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="held the lock .* stopped"), turn.taken():
                raise AssertionError("it is not ours")
        assert standing() == 1, "one thread stands there, however often we come"
    eventually(lambda: is_free(lock))  # nobody wanted it by then: it was passed on
    monkeypatch.setattr(module, "PATIENCE", PATIENCE)
    with turn.taken():
        assert not is_free(lock)
    assert is_free(lock)
    turn.let_go()
    eventually(lambda: standing() == 0)


def test_a_turn_that_comes_after_we_have_closed_is_passed_on(
    lock: Path, standing: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    turn = Turn(lock)
    with held_elsewhere(lock):
        with pytest.raises(StoreUnavailable), turn.taken():
            raise AssertionError("it is not ours")
        turn.let_go()
    eventually(lambda: is_free(lock) and standing() == 0)


def test_a_file_that_was_replaced_is_not_trusted(lock: Path) -> None:
    turn = Turn(lock)
    with turn.taken():
        pass
    lock.unlink()
    lock.touch()
    with turn.taken():
        assert not is_free(lock)
    turn.let_go()


def test_one_that_is_replaced_while_we_wait_is_not_trusted_either(lock: Path) -> None:
    turn, had = Turn(lock), []

    def take() -> None:
        with turn.taken():
            had.append(is_free(lock))

    with held_elsewhere(lock):
        thread = threading.Thread(target=take)
        thread.start()
        eventually(lambda: waiting_in_kernel(lock) == 1)
        lock.unlink()
        lock.touch()
    thread.join(PATIENCE)
    assert had == [False]
    turn.let_go()


AFTER_A_FORK = """
import os, sys, time
from pathlib import Path
from fencepost.store.turn import Turn

turn = Turn(Path(sys.argv[1]))
with turn.taken():
    child = os.fork()
    if child == 0:
        turn.let_go_after_fork()
        print("child", flush=True)
        with turn.taken():
            print("its turn", flush=True)
        os._exit(0)
    time.sleep(0.1)
    print("parent", flush=True)
os.waitpid(child, 0)
"""


def test_a_forked_child_waits_like_any_other_process(lock: Path) -> None:
    command = [sys.executable, "-c", AFTER_A_FORK, str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.split("\n"), done.stderr) == (["child", "parent", "its turn", ""], "")


def test_the_kernel_passes_on_the_turn_of_one_who_died(lock: Path) -> None:
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        killer = threading.Timer(0.1, process.kill)
        killer.start()
        turn = Turn(lock)
        with turn.taken():
            assert not is_free(lock)
        turn.let_go()
