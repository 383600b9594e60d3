from fencepost import Fire, Scheduler, cron, every

scheduler = Scheduler(store="memory://")


@scheduler.job(every(seconds=2))
async def tick(fire: Fire) -> None:
    print(f"tick, due at {fire.due_at:%H:%M:%S}")


@scheduler.job(every(seconds=5), args={"name": "world"})
def greet(name: str) -> None:
    print(f"hello, {name}")


@scheduler.job(cron("* * * * *"))
async def minute() -> None:
    print("a new minute")
