"""Virtual time itself, and that the simulator repeats itself exactly."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta

import pytest

from fencepost.testing.world import EPOCH, Process, World
from tests.protocol.sim import simulate


def test_time_stands_still_while_callbacks_run_and_moves_from_one_to_the_next():
    world, seen = World(), []
    process = Process(world)
    for delay in (3.0, 1.0, 2.0):
        process.call_later(delay, lambda: seen.append(process.time()))
    process.call_soon(lambda: seen.append(process.time()))
    world.run_until(2.5)
    assert seen == [0.0, 1.0, 2.0]
    assert world.now == 2.5
    assert world.datetime() == EPOCH + timedelta(seconds=2.5)
    world.run_until(10)
    assert seen == [0.0, 1.0, 2.0, 3.0]
    assert world.now == 10


def test_what_is_due_at_one_moment_happens_in_the_order_of_the_calls_across_processes():
    world, seen = World(), []
    processes = [Process(world, name) for name in "abc"]
    for number in range(9):
        processes[number % 3].call_at(1.0, seen.append, number)
    world.run_until(1.0)
    assert seen == list(range(9))


def test_real_coroutines_sleep_time_out_and_meet_in_virtual_time():
    world = World()
    process = Process(world)

    async def work():
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(3600)
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(1)), asyncio.create_task(asyncio.sleep(9))], timeout=5
        )
        return len(done), len(pending), asyncio.get_running_loop() is process

    assert process.run_until_complete(work()) == (1, 1, True)
    assert world.now == 3600 + 60 + 5


def test_waiting_for_what_never_happens_is_an_error():
    process = Process(World())
    with pytest.raises(TimeoutError, match="nothing more will happen"):
        process.run_until_complete(process.create_future())


def test_the_world_runs_inside_a_real_loop_and_restores_it():
    async def outer():
        here = asyncio.get_running_loop()
        process = Process(World())

        async def inner():
            return asyncio.get_running_loop()

        assert process.run_until_complete(inner()) is process
        assert asyncio.get_running_loop() is here

    asyncio.run(outer())


def test_a_cancelled_timer_never_rings():
    world, seen = World(), []
    process = Process(world)
    timers = [process.call_later(1.0, seen.append, number) for number in range(3)]
    timers[1].cancel()
    soon = process.call_soon(seen.append, "soon")
    soon.cancel()
    world.run_until(2.0)
    assert seen == [0, 2]


def test_a_paused_process_does_in_order_what_it_owes_when_it_wakes_and_others_go_on():
    world, seen = World(), []
    paused, other = Process(world, "paused"), Process(world, "other")
    for second in (1, 2, 3):
        paused.call_at(second, lambda second=second: seen.append(("paused", second, world.now)))
        other.call_at(second, lambda second=second: seen.append(("other", second, world.now)))
    world.at(0.5, lambda: paused.pause(9.5))
    world.run_until(5)
    assert seen == [("other", second, second) for second in (1, 2, 3)]
    world.run_until(10)
    assert seen[3:] == [("paused", second, 10.0) for second in (1, 2, 3)]


def test_a_process_that_is_woken_early_does_in_order_what_it_owes():
    world, seen = World(), []
    process = Process(world)
    process.call_at(1, lambda: seen.append("owed"))
    process.pause(10)
    world.at(3, process.resume)
    world.at(3, lambda: process.call_soon(lambda: seen.append("new")))
    world.run_until(4)
    assert seen == ["owed", "new"]


def test_the_longer_of_two_pauses_counts():
    world, seen = World(), []
    process = Process(world)
    process.call_at(1, lambda: seen.append(world.now))
    process.pause(8)
    process.pause(2)
    world.run_until(20)
    assert seen == [8.0]


def test_a_killed_process_never_runs_again_not_even_its_cleanup():
    world, seen = World(), []
    process = Process(world)

    async def work():
        try:
            seen.append("begun")
            await asyncio.sleep(5)
        finally:
            seen.append("cleaned up")

    task = process.create_task(work())
    world.at(1.0, process.kill)
    world.run_until(100)
    assert seen == ["begun"]
    assert process.is_closed()
    assert not task.done()
    task._log_destroy_pending = False


def test_errors_of_callbacks_are_kept_and_do_not_stop_the_world():
    world, seen = World(), []
    process = Process(world)
    process.call_soon(lambda: 1 / 0)
    process.call_soon(seen.append, 1)
    world.run_until(1)
    assert seen == [1]
    assert isinstance(process.errors[0]["exception"], ZeroDivisionError)


# The simulator


def test_the_same_seed_gives_the_same_history_twice():
    first, second, other = simulate(3, trace=True), simulate(3, trace=True), simulate(4)
    assert first.trace == second.trace
    assert first.digest == second.digest != other.digest
    assert len(first.trace) > 100


def test_the_same_seed_gives_the_same_history_in_other_processes_with_other_hash_seeds():
    program = "from tests.protocol.sim import simulate; print(simulate(3).digest)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "4242")
    ]
    digests = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert digests == {simulate(3).digest}
