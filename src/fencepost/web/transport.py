"""The transport below a request, where it can be found. ASGI itself has no way to abort a connection.

uvicorn's `send` belongs to an object that has it, unless a middleware of the host application has wrapped `send`; then
the server is asked for the connection of this client. With other servers there is none, and the connection is closed
as the server sees fit.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Scope, Send

TRANSPORT = "fencepost.transport"


def transport_of(scope: Scope, send: Send, server: Any = None) -> asyncio.Transport | None:
    found = getattr(getattr(send, "__self__", None), "transport", None)
    if found is not None:
        return _checked(found)
    for protocol in tuple(getattr(getattr(server, "server_state", None), "connections", ())):
        if scope.get("client") is not None and getattr(protocol, "client", None) == scope["client"]:
            return _checked(getattr(protocol, "transport", None))
    return None


def _checked(found: Any) -> asyncio.Transport | None:
    """Transports of other loops are no subclass."""
    return found if hasattr(found, "abort") and hasattr(found, "set_write_buffer_limits") else None
