"""Errors of the environment: locks, Spark, the prover."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError, Retry


class LockUnavailable(OncelakeError):
    """The lock folder is not writable."""

    code = "lock_unavailable"
    retry = Retry.HELPS
    says = "cannot acquire the lock of {target}: {problem}"
    hint = "make {folder} a writable folder, then run: oncelake status"


class LakeUnreachable(OncelakeError, OSError):
    """The store of a lake does not answer, or refuses. An OSError too: who expects that of a file expects it of an object."""

    code = "lake_unreachable"
    retry = Retry.HELPS
    stops_run = True
    says = "cannot read {path}: {problem}"
    hint = "check the lake, `storage:` and the credentials of the profile, then run: oncelake status"


class SparkUnavailable(OncelakeError):
    """Java or the Delta jars are missing."""

    code = "spark_unavailable"
    retry = Retry.HELPS
    says = "cannot start Spark: {problem}"
    hint = "{next}"


class KafkaNotStarted(OncelakeError):
    """The Kafka broker for development did not start."""

    code = "kafka_not_started"
    retry = Retry.HELPS
    says = "cannot start Kafka: {problem}"
    hint = "{next}"


class DeltaMissing(OncelakeError):
    """The session that is used has no Delta."""

    code = "delta_missing"
    retry = Retry.HELPS
    stops_run = True
    says = "the Spark session has no Delta, so {pipeline} cannot write {target}: {problem}"
    hint = (
        'give Spark Delta\'s jars, for instance spark-submit --jars "$(python -m oncelake.spark.jars)", and a session that the program starts '
        "itself also Delta's extension and catalog, then run: oncelake run {pipeline}"
    )


class WorkersDiffer(OncelakeError):
    """The cluster's workers cannot run the project's Python functions as this process would."""

    code = "workers_differ"
    retry = Retry.HELPS
    stops_run = True
    says = "the workers of the cluster differ from this process: {problem}"
    hint = "set PYSPARK_PYTHON and TZ to the same Python and time zone everywhere, then run: oncelake run"


class SparkLost(OncelakeError):
    """Spark's JVM (or its Connect server) died, and died again after a restart."""

    code = "spark_lost"
    retry = Retry.UNKNOWN
    stops_run = True
    says = "Spark's JVM died while {pipeline} wrote {target} ({problem}); Spark's own log is in {log}"
    hint = "give Spark more memory or look into its log, then run: oncelake run {pipeline}"


class ServerLost(SparkLost):
    """The Spark Connect server did not answer, and not to a new session either."""

    code = "server_lost"
    says = "the Spark Connect server did not answer while {pipeline} wrote {target} ({problem})"
    hint = "start the server, or fix spark.remote, then run: oncelake run {pipeline}"


class MachineFailed(OncelakeError):
    """The disk is full, or a folder cannot be written."""

    code = "machine_failed"
    retry = Retry.HELPS
    stops_run = True
    says = "cannot write {target}: {problem}"
    hint = "free space or fix the permissions, then run: oncelake run {pipeline}"


class ProverUnavailable(OncelakeError):
    """This machine lacks a requirement of the requested proof."""

    code = "prover_unavailable"
    says = "cannot run this proof on this machine: {problem}"
    hint = "{next}"


class NothingToProve(OncelakeError):
    """The clean run failed, so there is no reference to compare other runs with."""

    code = "nothing_to_prove"
    retry = Retry.UNKNOWN
    says = "the clean run of {job} in the sandbox failed, so there is no reference to compare with: {problem}"
    hint = "{next}"
