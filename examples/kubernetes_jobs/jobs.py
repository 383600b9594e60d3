"""A report that runs in a pod of its own, whose image and memory are not those of the scheduler."""

from pathlib import Path

from fencepost import Fire, Scheduler, cron

scheduler = Scheduler()  # FENCEPOST_STORE
POD = Path(__file__).parent / "pod.yaml"


@scheduler.job(
    cron("0 3 * * *"),
    executor="kubernetes",
    engine={"template": str(POD), "resources": {"limits": {"memory": "4Gi", "cpu": "2"}}},
    timeout=3600,
)
def report(fire: Fire) -> None:
    print(f"{fire.key} runs in a pod", flush=True)
