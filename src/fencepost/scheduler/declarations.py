"""What this process declares: tasks, jobs and the engines they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import Job, checked_id
from fencepost.model.triggers import Trigger
from fencepost.runs.engines import Engine
from fencepost.runs.engines.finding import checked_options, engine_named, known_engines
from fencepost.runs.resources import Resource, checked_resources
from fencepost.runs.tasks import Registry, Task
from fencepost.scheduler.after import Parents, refuse_circle
from fencepost.scheduler.declare import as_trigger, declared_job, default_policies
from fencepost.scheduler.editing import Editor
from fencepost.scheduler.single_instance import SingleInstance
from fencepost.settings import Settings


class Declarations:
    """One per scheduler. Declaring is for the thread that imports the application's modules."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        resources: Mapping[str, Resource],
        engines: Mapping[str, Engine],
        gate: SingleInstance | None,
    ) -> None:
        self._settings = settings
        self._resources = checked_resources(resources)
        self._engines = dict(engines)
        self._gate = gate
        self.registry = Registry()
        self.jobs: dict[str, Job] = {}
        self.job_file: Path | None = None

    def task(
        self,
        function: Callable[..., Any],
        id: str | None,
        executor: str | None,
        engine: Mapping[str, Any] | None,
    ) -> Task:
        if executor not in known_engines(self._engines):
            if engine is not None:
                raise ConfigurationError("engine={…} are options of an engine: name it, as executor='celery'")
            return self.registry.add(Task.of(function, id, executor, self._resources))
        task = Task.of(function, id, None, self._resources)
        options = checked_options(str(executor), engine, self._engines, f"task {task.name}")
        return self.registry.add(replace(task, engine=executor, engine_options=options))

    def without_schedule(self, task: Task) -> Job:
        """The job of a task that runs only when it is triggered."""
        policies = {"execute_on": self._settings().execute_on, **default_policies(task)}
        return Job(task.name, task.name, **policies)

    def job(self, task: Task | str, id: str, trigger: Any, policies: Mapping[str, Any]) -> Job:
        """A checked definition. It is not declared yet."""
        if self._gate is not None and policies.get("execute_on", "leader") != "leader":
            raise ConfigurationError(
                f"job {id}: with single_instance all jobs run on the leader; leave out execute_on"
            )
        proposed = {} if isinstance(task, str) else default_policies(task)
        defaults = {"execute_on": self._settings().execute_on, **proposed}
        calendar = None if trigger is None else self.trigger(trigger)
        return declared_job(task, id, calendar, {**defaults, **policies})

    def trigger(self, given: Any) -> Trigger:
        return given.resolved(self.id_of) if isinstance(given, Parents) else as_trigger(given)

    def add(self, job: Job) -> None:
        if job.id in self.jobs:
            raise ConfigurationError(f"job {job.id!r} is declared twice; give one of them another id=")
        refuse_circle(job, self.jobs)
        self.jobs[job.id] = job

    def id_of(self, what: Callable[..., Any] | str) -> str:
        """Of the job that is meant: its function, or its id."""
        if isinstance(what, str):
            return checked_id(what, "job id")
        task = self.registry.find(what)
        if task is None:
            raise UsageError(f"{what!r} is not a job of this scheduler; decorate it, or give the job's id")
        return task.name

    def function_of(self, job_id: str) -> Callable[..., Any] | None:
        job = self.jobs.get(job_id)
        return None if job is None else self.registry.get(job.target).function

    @property
    def editor(self) -> Editor:
        """Checks definitions that are made by hand, as those of code are checked."""
        folder = Path() if self.job_file is None else self.job_file.parent
        return Editor(self.registry, self.job, folder)

    def used_engines(self, inline: bool) -> dict[str, Engine]:
        """Those given, and those that jobs declared here name. Where a test owns the time, only those given."""
        named = set() if inline else {job.engine for job in self.jobs.values() if job.engine is not None}
        return {name: engine_named(name, self._engines) for name in sorted({*self._engines, *named})}

    # --- taking back ------------------------------------------------------------------------------------

    def only(self, task: str) -> None:
        """Take part for this task alone (`fencepost trigger --here`). Before the start."""
        known = self.registry.get(task)
        self.registry = Registry()
        self.registry.add(known)
        self.jobs = {id: job for id, job in self.jobs.items() if job.target == task}

    def withdraw(self, ids: Iterable[str]) -> None:
        """Take declarations back, as if they had never been made. Before the start."""
        for id in ids:
            self.registry.drop(self.jobs.pop(id).target)

    def compared_with(self, other: Declarations) -> tuple[list[str], list[str], list[str]]:
        """The ids of the jobs that are new, changed and gone there."""
        before, after = self.jobs, other.jobs
        new = [id for id in after if id not in before]
        gone = [id for id in before if id not in after]
        kept = [id for id in after if id in before]
        changed = [
            id for id in kept if (before[id], self.function_of(id)) != (after[id], other.function_of(id))
        ]
        return new, changed, gone
