"""The commands of a project that concern its streams; nothing but delegation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelake.declare.pipelines import Pipeline
from oncelake.declare.settings import Settings
from oncelake.delta.tables import Lake
from oncelake.planning.plan import select_pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelake.operations.doctor import Diagnosis
    from oncelake.operations.restart import Restart


class StreamCommands(ABC):
    """What a project offers for streams whose checkpoint is lost, damaged or misplaced."""

    pipelines: Mapping[str, Pipeline]
    lake: Lake
    settings: Settings

    @abstractmethod
    def session(self) -> SparkSession:
        """Return the project's Spark session."""

    def restart(
        self,
        name: str,
        *,
        adopt: bool = False,
        from_beginning: bool = False,
        accept_loss: bool = False,
        dry_run: bool = False,
    ) -> Restart:
        """Restart a stream whose checkpoint is lost or does not fit its targets. No JVM.

        `adopt` rebuilds the checkpoint exactly, from what the commits of the targets record. `from_beginning` begins the next
        epoch: the next run reads everything again, into the same rows; targets that are added to lose their rows first. What
        the source no longer has stops it, unless `accept_loss`.
        """
        from oncelake.operations.restart import Restarting

        if adopt == from_beginning:
            raise ValueError("restart takes either adopt=True or from_beginning=True")
        (pipeline,) = select_pipelines(self.pipelines, [name])
        around = (self.session, self.settings.lock_timeout, self.settings.id)
        restarting = Restarting(pipeline, self.pipelines, self.lake, *around)
        return restarting.adopt(dry_run) if adopt else restarting.from_beginning(dry_run, accept_loss)

    def doctor(self, *names: str, streams: bool = False, fix: bool = False) -> Diagnosis:
        """Examine the set-up, or with `streams` the checkpoints of streams; `fix` fixes what is certain to be right. No JVM."""
        from oncelake.operations.doctor import StreamDoctor, examine_setup

        chosen = select_pipelines(self.pipelines, names)
        if not streams:
            return examine_setup(self.settings, chosen)
        return StreamDoctor(self.pipelines, self.lake, self.settings.lock_timeout).examine(chosen, fix)
