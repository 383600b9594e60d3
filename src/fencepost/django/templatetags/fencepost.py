"""`{% load fencepost %}{% fencepost_status job="stops" %}`: the status widget, of the project's scheduler."""

from fencepost.web.widget.django import register as register
