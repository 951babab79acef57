"""`python -m mhalesson record` records a run on this machine, on its GPU if it has one."""

import argparse
import os
import re

import torch

from mhalesson.recording import MINUTES, machine, sweep
from mhalesson.timing import RUNS, save_run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mhalesson", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    record = commands.add_parser("record", help=f"time attention here, for at most about {MINUTES} minutes")
    record.add_argument("--name", help="of the run's file; by default, the device and the date")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # as page 05 measures, and for its reasons
    about = machine(device)
    name = arguments.name or re.sub(r"[^a-z0-9]+", "-", f"{about['device']} {about['date']}".lower())
    # Better known before the four minutes than after.
    if not re.fullmatch(r"[\w.-]+", name):
        parser.error(f"--name {name}: use letters, digits, and - . _")
    if (RUNS / f"{name}.json").exists():
        parser.error(f"there is a run {name} already; choose another with --name")
    RUNS.mkdir(exist_ok=True)
    if not os.access(RUNS, os.W_OK):
        parser.error(f"{RUNS} cannot be written to")
    print("saved as", save_run(name, sweep(device)))


if __name__ == "__main__":
    main()
