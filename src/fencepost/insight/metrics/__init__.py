"""The metrics: defined once, counted once, and exported by `web/metrics.py` and `otel/meters.py`."""
