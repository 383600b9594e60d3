from django.http import HttpRequest, HttpResponse, HttpResponseBase

from fencepost.django import scheduler
from shop.models import Order


def pay(request: HttpRequest, order: int) -> HttpResponseBase:
    Order.objects.filter(pk=order).update(paid=True)
    handle = scheduler.sync.trigger("remind")
    return HttpResponse(handle.key)
