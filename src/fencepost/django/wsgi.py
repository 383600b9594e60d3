"""A WSGI server's workers that take part. In the project's `wsgi.py`:

from fencepost.django.wsgi import get_wsgi_application
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.core.wsgi import get_wsgi_application as djangos_application

from fencepost.django.taking_part import DjangoStarter

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def get_wsgi_application() -> Application:
    """Django's application. The process that serves it runs jobs, in threads beside the requests."""
    application: Application = djangos_application()
    starter = DjangoStarter()
    starter.soon()

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        starter.now()
        return application(environ, start_response)

    return serve
