"""Errors of streams: their checkpoints, their sources, and what no longer fits what the targets have."""

from __future__ import annotations

from oncelake.errors.base import Retry
from oncelake.errors.work import WorkFailed


class OtherCheckpoint(WorkFailed):
    """A stream of the same name wrote the target from another checkpoint, so its batch numbers mean other rows."""

    code = "other_checkpoint"
    says = "{target} has batches of stream {stream} from another checkpoint ({known}); this one is new ({found})"
    hint = "start the stream with its former checkpoint, or give it another name= if its input is another"


class OlderCheckpoint(WorkFailed):
    """An older copy of a checkpoint was put back: the numbers of its batches come again, with other rows."""

    code = "older_checkpoint"
    says = (
        "{target} has batch {last} of stream {stream}, and its checkpoint is older: "
        "it runs batch {number}, which is not what was written under that number"
    )
    hint = (
        "put the newest copy of the checkpoint back; if there is none, start the stream with another name= and a new "
        "checkpoint at these offsets, at which the last commit ended: {inputs}"
    )


class CheckpointLost(WorkFailed):
    """The targets have batches of a stream whose checkpoint is gone: a new one would start at the beginning."""

    code = "checkpoint_lost"
    says = "the checkpoint of {pipeline} is gone ({folder}), and {target} has batch {batch} of it"
    hint = (
        "go on from the offsets in the targets' own commits: oncelake restart {pipeline} --adopt; "
        "or read everything again: oncelake restart {pipeline} --from-beginning"
    )


class CheckpointBehind(CheckpointLost):
    """The checkpoint is older than what the targets have, or has other offsets for the same batch."""

    code = "checkpoint_behind"
    says = "{target} has batch {batch} of {pipeline}, and the checkpoint ({folder}) does not fit it: it is at batch {begun}"


class CheckpointCopied(CheckpointLost):
    """The checkpoint belongs to another stream."""

    code = "checkpoint_copied"
    says = "the checkpoint of {pipeline} ({folder}) belongs to another query ({found}, not {known}): it was copied"


class CheckpointMisplaced(WorkFailed):
    """The folder for checkpoints is one in which they would get lost."""

    code = "checkpoint_misplaced"
    says = "the checkpoint of {pipeline} may not lie in {folder}: {problem}"
    hint = "set checkpoints: in oncelake.yaml to another folder, or leave it out to keep them in the lake"


class CheckpointTorn(WorkFailed):
    """A file of a checkpoint is not complete: Spark would stop at it, or skip a batch."""

    code = "checkpoint_torn"
    says = "{file} in the checkpoint of {pipeline} ({folder}) is not complete"
    hint = "oncelake doctor --streams --fix {pipeline}"


class StreamChanged(WorkFailed):
    """A stream is declared otherwise than when its checkpoint was begun."""

    code = "stream_changed"
    says = "{where}: the {what} of {pipeline} was {before} when its checkpoint was begun, and is {now}"
    hint = (
        "declare it as before (the function, targets and patterns may change), "
        "or read everything again: oncelake restart {pipeline} --from-beginning"
    )


class StreamFailed(WorkFailed):
    """A query stopped with an error outside of a batch's commit: the source, the state or the checkpoint."""

    code = "stream_failed"
    retry = Retry.UNKNOWN
    says = "the stream {pipeline} stopped: {problem}"
    hint = "oncelake run {pipeline}; if it stops again: oncelake doctor --streams {pipeline}"


class StateDamaged(WorkFailed):
    """The state that a query keeps is gone or cannot be read, and nothing but its input can give it again."""

    code = "state_damaged"
    says = "the state of the stream {pipeline} cannot be read: {problem}"
    hint = "read everything again: oncelake restart {pipeline} --from-beginning"


class MessagesLost(WorkFailed):
    """Messages were removed from the topic before they were read."""

    code = "messages_lost"
    says = "the stream {pipeline} stopped: messages are gone that it has to read ({problem})"
    hint = (
        "oncelake doctor --streams {pipeline} counts them, and says which target lacks them if the others do not; "
        "if they cannot be sent again: oncelake restart {pipeline} --from-beginning --accept-loss"
    )


class UpstreamRewritten(WorkFailed):
    """A table that is read by its appended rows was changed in another way."""

    code = "upstream_rewritten"
    says = "the stream {pipeline} stopped: {problem}"
    hint = (
        "read the table as it is now: oncelake restart {pipeline} --from-beginning; "
        "if its rows change regularly, declare feed=True in {where} before that"
    )


class UpstreamRecreated(WorkFailed):
    """A table that is read as a stream was dropped and created again."""

    code = "upstream_recreated"
    says = "the stream {pipeline} stopped: the table that it reads was dropped and created again ({problem})"
    hint = "read everything again: oncelake restart {pipeline} --from-beginning"


class UpstreamVacuumed(WorkFailed):
    """Files of a table that is read as a stream were removed before they were read, or have to be read again."""

    code = "upstream_vacuumed"
    says = "the stream {pipeline} stopped: files of the table that it reads are gone, removed by VACUUM ({problem})"
    hint = "read the table as it is now: oncelake restart {pipeline} --from-beginning"


class CannotRestart(WorkFailed):
    """A stream that cannot be restarted in that way without losing or doubling rows."""

    code = "cannot_restart"
    says = "cannot restart {pipeline} {how}: {problem}"
    hint = "{next}"


class RestartUnfinished(WorkFailed):
    """A restart from the beginning was interrupted: what is read again could be doubled, or begin at another place."""

    code = "restart_unfinished"
    says = "the restart of {pipeline} from the beginning (epoch {epoch}, {folder}) is not finished: {problem}"
    hint = "finish it: oncelake restart {pipeline} --from-beginning"


class StreamsNotRemote(WorkFailed):
    """A stream of a pipeline over Spark Connect."""

    code = "streams_not_remote"
    says = "{pipeline} is a stream, and its batches need the driver: they do not run over Spark Connect"
    hint = "run it with another profile (spark.master instead of spark.remote): oncelake run {pipeline} --profile …"


class BatchesUnknown(WorkFailed):
    """A target lacks batches whose offsets are no longer known."""

    code = "batches_unknown"
    says = (
        "{target} lacks batches {first} to {last} of {pipeline}, "
        "and the offsets of batch {unknown} are neither in its checkpoint nor in the commits of its targets"
    )
    hint = "read everything again: oncelake restart {pipeline} --from-beginning"


class StateAhead(WorkFailed):
    """A target lacks batches of a stream that keeps state: the state is that of a later batch."""

    code = "state_ahead"
    says = "{target} lacks batches {first} to {last} of {pipeline}, and the state of the query ({folder}) is later than that"
    hint = "read everything again: oncelake restart {pipeline} --from-beginning"


class StreamNotRedone(WorkFailed):
    """Batches of a stream are not restated or rebuilt one by one."""

    code = "stream_not_redone"
    says = "cannot {verb} {target}: {pipeline} is a stream, whose batches are not redone one by one"
    hint = "read everything again: oncelake restart {pipeline} --from-beginning; or go back: oncelake restore {target} --to VERSION"


class DecodedBefore(WorkFailed):
    """Messages that other targets have, or that a retry has begun to write, cannot be decoded any more."""

    code = "decoded_before"
    says = "{where}: {count} messages of {what} of {pipeline} cannot be decoded now, and another target has them"
    hint = "declare the source such that they can be decoded, then repeat the command"


class MessagesGone(WorkFailed):
    """Messages of a retry that some targets have are gone from Kafka, so the others cannot get them."""

    code = "messages_gone"
    says = "{count} messages of {what} of {pipeline} are gone from Kafka, and some targets lack them: {places}"
    hint = "oncelake quarantine list {pipeline}, then: oncelake quarantine drop {pipeline} with their numbers, and retry the others"


class CannotRetry(WorkFailed):
    """Messages of a stream whose pattern cannot write single ones later."""

    code = "cannot_retry"
    says = "cannot retry the messages of {pipeline}: {problem}"
    hint = "{next}"
