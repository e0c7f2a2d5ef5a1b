"""What the attacks share: their options, and how they end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any


def options(doc: str | None, targets: Iterable[str]) -> argparse.ArgumentParser:
    """How long, how often, from which seed, and what to attack."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=0, help="so many for each target, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(targets))
    return parser


def conclude(seed: int, found: dict[str, Any], bad: int) -> int:
    """Print the counts; the exit status says whether all held."""
    sys.stdout.write(json.dumps({"seed": seed, "held": not bad, "targets": found}, indent=1) + "\n")
    return int(bool(bad))
