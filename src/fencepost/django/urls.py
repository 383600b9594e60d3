"""`path("fencepost/", include("fencepost.django.urls"))`"""

from __future__ import annotations

from django.urls import re_path

from fencepost.django.views import service

app_name = "fencepost"
urlpatterns = [re_path(r"^(?P<path>.*)$", service, name="service")]
