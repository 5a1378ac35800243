"""Errors of the environment: locks, Spark, the prover."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError, Retry


class LockUnavailable(OncelakeError):
    """The lock folder is not writable."""

    code = "lock_unavailable"
    retry = Retry.HELPS
    says = "cannot acquire the lock of {target}: {problem}"
    hint = "make {folder} a writable folder, then run: oncelake status"


class SparkUnavailable(OncelakeError):
    """Java or the Delta jars are missing."""

    code = "spark_unavailable"
    retry = Retry.HELPS
    says = "cannot start Spark: {problem}"
    hint = "{next}"


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
