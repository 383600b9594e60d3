"""The service: API, live events, health, metrics and the widget. In reading order:

    app → gate → auth → desk → api (models, openapi, problems) → feed → sse → health → metrics → logs → shutdown

Only `shutdown` is needed without the extra `[web]`: every scheduler under a server leaves by it.
"""
