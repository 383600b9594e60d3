"""The engines that come with Fencepost: Celery, Dask and Kubernetes Jobs. Each is a thin leaf over the interface in
`runs/engines/base.py`, with an extra of its own; docs/engines.md says which to choose, and how to write another."""
