"""`path("fencepost/", include("fencepost.django.urls"))`"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.urls import re_path

from fencepost.errors import missing_extra

try:
    from fencepost.django.views import service
except ModuleNotFoundError as error:
    raise ImproperlyConfigured(str(missing_extra("fencepost.django.urls", error, "web"))) from None

app_name = "fencepost"
urlpatterns = [re_path(r"^(?P<path>.*)$", service, name="service")]
