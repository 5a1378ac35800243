"""The options of every command that works on a project, and how its errors end it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

import oncelake as once
from oncelake.cli.hints import chosen_options
from oncelake.cli.output import Output


def lazy_project_options(command: Callable[..., Any]) -> Callable[..., None]:
    """Add the options of every command. The command gets a function that opens the project, because it may not need one."""

    @click.option("--project", "-p", default=None, metavar="DIR", help="Project folder.")
    @click.option("--profile", default=None, metavar="NAME", help="Profile in oncelake.yaml.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document to standard output.")
    @wraps(command)
    def run_command(project: str | None, profile: str | None, as_json: bool, **options: Any) -> None:
        ctx = click.get_current_context()
        project, profile = project or ctx.obj["project"], profile or ctx.obj["profile"]
        output = Output(as_json, chosen_options(project, profile))
        try:
            code = command(lambda: once.open(project or ".", profile), output, **options)
        except once.OncelakeError as error:
            code = output.error(error)
        except click.UsageError as error:
            output.usage_error(error.format_message())
            raise
        except KeyboardInterrupt:
            code = output.interrupted()
        ctx.exit(code)

    return run_command


def project_options(command: Callable[..., Any]) -> Callable[..., None]:
    """Add the options of every command that works on a project, and open the project first."""

    @wraps(command)
    def with_project(open_project: Callable[[], once.Project], output: Output, **options: Any) -> Any:
        return command(open_project(), output, **options)

    return lazy_project_options(with_project)
