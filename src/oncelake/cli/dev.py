"""`oncelake dev`: servers for development, on loopback, until they are stopped."""

from __future__ import annotations

import json
import signal
from typing import Any

import click

import oncelake as once
from oncelake.cli.output import Output


@click.group()
def dev() -> None:
    """Start a server for development on this machine."""


@dev.command(short_help="Start a warm Spark Connect server.")
@click.option("--port", default=0, metavar="PORT", help="Port to listen on (default: a free one).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document to standard output.")
@click.pass_context
def connect(ctx: click.Context, port: int, as_json: bool) -> None:
    """Start a warm Spark Connect server with Delta, and print its address for `spark.remote`.

    It listens on 127.0.0.1 and runs until Ctrl-C or SIGTERM.
    """
    from oncelake.spark.server import connect_server

    output = Output(as_json)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with connect_server(port=port) as (address, process):
            click.echo(json.dumps({"address": address}) if as_json else address)
            process.wait()
        code = 1
    except KeyboardInterrupt:
        code = 0
    except once.OncelakeError as error:
        code = output.error(error)
    finally:
        signal.signal(signal.SIGTERM, before)
    ctx.exit(code)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
