from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

from fencepost.django import scheduler
from shop.models import Order


def pay(request: HttpRequest, order: int) -> HttpResponse:
    """The payment and the job that follows it: both are committed, or neither."""
    with transaction.atomic():
        Order.objects.filter(pk=order).update(paid=True)
        handle = scheduler.sync.trigger("remind", connection=connection)
    return HttpResponse(handle.key)
