"""The jobs of the shop. Fencepost finds this file because `shop` is installed; each fire runs once in the cluster."""

import os

from django.utils import timezone

from fencepost import Fire
from fencepost.django import cron, every
from shop.models import Order, Run
from shop.tasks import send_receipts

CODE = "first"


def note(fire: Fire) -> None:
    Run.objects.create(job=fire.job_id, fire_key=fire.key, code=CODE, pid=os.getpid())


@every(seconds=2)
def remind(fire: Fire) -> int:
    """Every two seconds, so that there is something to see."""
    note(fire)
    return Order.objects.filter(paid=False, reminded_at=None).update(reminded_at=timezone.now())


@every(seconds=3)
async def count_orders(fire: Fire) -> int:
    await Run.objects.acreate(job=fire.job_id, fire_key=fire.key, code=CODE, pid=os.getpid())
    return await Order.objects.acount()


@cron("0 3 * * *")
def forget_old_orders(fire: Fire) -> None:
    """At three in the morning by the project's TIME_ZONE."""
    note(fire)
    Order.objects.filter(paid=True, reminded_at__lt=timezone.now() - timezone.timedelta(days=365)).delete()


every(seconds=2)(send_receipts)  # or as a decorator above @task
