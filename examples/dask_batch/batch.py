"""A batch that is computed on a Dask cluster every hour."""

from fencepost import Fire, Scheduler, cron, every

scheduler = Scheduler()  # FENCEPOST_STORE


@scheduler.job(cron("5 * * * *"), executor="dask", engine={"resources": {"GPU": 1}}, timeout=1800)
def train(fire: Fire) -> None:
    """Runs on a worker that was started with `--resources GPU=1`."""
    print(f"trained for {fire.due_at:%H:%M}", flush=True)


@scheduler.job(every(seconds=10), executor="dask", args={"size": 200_000}, after_crash="rerun")
def sums(fire: Fire, size: int) -> int:
    """Goes on where it was cut off: a worker that is killed takes nothing with it but the last part."""
    total, begin = fire.checkpoint or (0, 0)
    for number in range(begin, size, 50_000):
        total += sum(range(number, min(size, number + 50_000)))
        fire.save([total, number + 50_000]).wait()
    return total
