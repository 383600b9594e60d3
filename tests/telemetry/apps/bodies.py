"""Bodies that run in processes of their own."""

import os

from fencepost import current_fire
from fencepost.otel.context import current_traceparent


def in_process():
    return {
        "environment": os.environ.get("TRACEPARENT"),
        "fire": current_fire().traceparent,
        "current": current_traceparent(),
    }
