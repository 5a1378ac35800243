"""What the machine, the store or the session lacks."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError, Retry


class LockUnavailable(OncelakeError):
    """The folder of locks cannot be used."""

    code = "lock_unavailable"
    retry = Retry.HELPS
    says = "the lock of {target} cannot be taken: {problem}"
    hint = "oncelake status, once {folder} is a folder that can be written"


class SparkUnavailable(OncelakeError):
    """No Java, or Delta's jars cannot be had."""

    code = "spark_unavailable"
    retry = Retry.HELPS
    says = "Spark cannot start: {problem}"
    hint = "{next}"


class ProverUnavailable(OncelakeError):
    """A level of proof needs something that is not there."""

    code = "prover_unavailable"
    says = "this cannot be proven here: {problem}"
    hint = "{next}"


class NothingToProve(OncelakeError):
    """The clean run, which every other is compared with, did not end well."""

    code = "nothing_to_prove"
    retry = Retry.UNKNOWN
    says = "the clean run of {job} in the sandbox failed, so there is nothing to compare with: {problem}"
    hint = "{next}"
