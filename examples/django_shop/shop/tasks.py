"""Background tasks. `manage.py db_worker` runs what a fire, or a view, has enqueued."""

import os

from shop.models import Run

try:
    from django.tasks import task  # Django 6
except ImportError:
    from django_tasks import task


@task()
def send_receipts(fire_key: str = "") -> None:
    Run.objects.create(job="send_receipts", fire_key=fire_key, pid=os.getpid())
