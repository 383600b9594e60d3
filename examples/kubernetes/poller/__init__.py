"""A polling service for Kubernetes: three replicas, one leader, every device polled once per interval."""
