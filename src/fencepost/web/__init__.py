"""The service: API, live events, health, metrics and the widget. In reading order:

    app → gate → auth (peer, access_log) → desk → endpoint → api (models, openapi, problems, visible) → feed (listener)
    → sse → health → metrics
    server, connections, tls, logs: `fencepost serve`      shutdown: the way out under a server

Only `shutdown` is needed without the extra `[web]`: every scheduler under a server leaves by it.
"""
