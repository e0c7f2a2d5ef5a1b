"""The part of a report about the method: what was fitted, with which parameters, and how the fit went."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise import registry
from crowdwise.core.result import plain as plain_parameter
from crowdwise.report.json_values import number, plain_list

MOST_POINTS = 400
"""Points of the objective that are drawn."""


def method_facts(result: Any) -> dict[str, Any]:
    """Key, summary, parameters, passes and trace of any result."""
    entries = (registry.METHODS, registry.LEARNERS, registry.ANSWER_METHODS)
    entry = next((found[result.method] for found in entries if result.method in found), None)
    trace = result.trace
    if len(trace) > MOST_POINTS:
        trace = trace[np.unique(np.linspace(0, len(trace) - 1, MOST_POINTS).astype(int))]
    return {
        "key": result.method,
        "summary": entry.summary if entry is not None else "",
        "reference": entry.reference if entry is not None else "",
        "notes": list(result.notes),
        "parameters": {name: plain_parameter(value) for name, value in result.params.items()},
        "seed": result.seed,
        "iterations": int(result.iterations),
        "converged": bool(result.converged),
        "seconds": round(float(result.seconds), 3),
        "objective": number(trace[-1]) if len(trace) else None,
        "trace": plain_list(trace),
    }
