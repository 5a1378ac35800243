"""Every error oncelake raises."""

from oncelake.errors.base import *  # noqa: F403
