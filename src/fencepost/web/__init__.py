"""The service: API, live events, health, metrics and the widget. In reading order:

    app → gate → auth → desk → endpoint → api (models, openapi, problems) → feed → sse → health → metrics
    server, logs: `fencepost serve`      static/widget.js: the widget      shutdown: the way out under a server

Only `shutdown` is needed without the extra `[web]`: every scheduler under a server leaves by it.
"""
