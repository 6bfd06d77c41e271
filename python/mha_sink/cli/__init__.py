"""Command line: `info` describes the installation and tests it, `demo` trains a small model,
`bench` measures sparse MLA, `selftest` compares a device with the emulator, `profile` says what
bounds a kernel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mha_sink import Error
from mha_sink.cli import bench, demo, info, profile, selftest
from mha_sink.cli.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit status: 0, 1 when a gate failed, 2 when the request cannot be served.
    """
    parser = argparse.ArgumentParser(prog="python -m mha_sink", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (info, demo, bench, selftest, profile):
        name = command.__name__.rpartition(".")[2]
        summary = (command.__doc__ or "").partition("\n")[0]
        subparser = commands.add_parser(name, help=summary, description=command.__doc__)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except (UsageError, Error) as error:
        print(f"mha_sink {options.command}: {error}", file=sys.stderr)
        return 2
    return status
