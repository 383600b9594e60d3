"""Pipelines: a task of ordered phases, with progress, checkpoints, fresh sources and a status document.

In reading order: `pipeline` (declaration), `phases` (running them, in `threads` or in a `process`), `memory` (what a
resumed run knows), `run` (what a phase sees), `progress`, `rules` (run types), `source` and `http` (freshness), `files`
and `download`, `publish`, `status`.
"""

from fencepost.pipeline.files import written
from fencepost.pipeline.pipeline import Pipeline
from fencepost.pipeline.publish import published
from fencepost.pipeline.rules import rule
from fencepost.pipeline.run import PipelineRun
from fencepost.pipeline.source import Source
from fencepost.pipeline.status import pipeline_status, pipeline_status_blocking

__all__ = [
    "Pipeline",
    "PipelineRun",
    "Source",
    "pipeline_status",
    "pipeline_status_blocking",
    "published",
    "rule",
    "written",
]
