"""`oncelake dev`: servers for development, on loopback, until they are stopped."""

from __future__ import annotations

import json
import signal
from contextlib import AbstractContextManager
from subprocess import Popen
from typing import Any

import click

import oncelake as once
from oncelake.cli.output import Output


@click.group()
def dev() -> None:
    """Start a server for development on this machine."""


PORT = click.option("--port", default=0, metavar="PORT", help="Port to listen on (default: a free one).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document to standard output.")


@dev.command(short_help="Start a warm Spark Connect server.")
@PORT
@JSON
@click.pass_context
def connect(ctx: click.Context, port: int, as_json: bool) -> None:
    """Start a warm Spark Connect server with Delta, and print its address for `spark.remote`.

    It listens on 127.0.0.1 and runs until Ctrl-C or SIGTERM.
    """
    from oncelake.spark.server import connect_server

    ctx.exit(_serve(connect_server(port=port), as_json))


@dev.command(short_help="Start a Kafka broker.")
@PORT
@click.option("--folder", metavar="DIR", help="Folder for the data, which stay there (default: a temporary one).")
@JSON
@click.pass_context
def kafka(ctx: click.Context, port: int, folder: str | None, as_json: bool) -> None:
    """Start a Kafka broker, and print its address (host:port) when it is ready.

    It listens on 127.0.0.1 and runs until Ctrl-C or SIGTERM.
    """
    from oncelake.spark.kafka_broker import kafka_broker

    ctx.exit(_serve(kafka_broker(folder, port), as_json))


def _serve(server: AbstractContextManager[tuple[str, Popen[bytes]]], as_json: bool) -> int:
    """Run a server until it is stopped; print its address when it answers, and return the exit code."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with server as (address, process):
            click.echo(json.dumps({"address": address}) if as_json else address)
            process.wait()
    except KeyboardInterrupt:
        return 0
    except once.OncelakeError as error:
        return Output(as_json).error(error)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
