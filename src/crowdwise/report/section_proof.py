"""What is proven of the labels by gold labels, or what random gold labels would prove.

Labels that were fitted with gold vouch for nothing: the method is then fitted again without it, and these labels are
certified. Gold that is not a random draw by its scores proves nothing, and the section says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError
from crowdwise.report.section_summary import number
from crowdwise.trust.certificate import certify, draw_for_gold, would_prove

ALLOWED, CONFIDENCE = (0.05, 0.1), 0.95
ASKED = (50, 100, 200)
"""Numbers of gold labels that are tried out where there are none."""
SHEET = 100
"""Items on the sheet."""
MIN_GOLD, MIN_ITEMS = 10, 20
MOST_VOTES = 1_000_000
"""The most votes that are fitted again without gold."""


def proof(votes: Votes, consensus: Consensus, gold: Ints | None, truth: Ints | None) -> dict[str, Any] | None:
    """The section: ``certificates`` where there is gold or truth of some items, else ``would`` and a ``sheet``.

    ``gold`` are classes that the method may have used, ``truth`` those that only measure.
    """
    N = len(consensus.items)
    known = np.full(N, -1) if truth is None else np.where(truth >= 0, truth, -1)
    known = known if gold is None else np.where(gold >= 0, gold, known)
    n = int((known >= 0).sum())
    if N < MIN_ITEMS or len(consensus.classes) < 2 or (n == N > MIN_GOLD and gold is not None):
        return None
    if MIN_GOLD <= n < N:
        return _certified(votes, consensus, known)
    sheet = draw_for_gold(consensus, min(SHEET, N)).tolist()
    would: list[dict[str, Any]] = []
    for g in (n for n in ASKED if n < N):
        for e in ALLOWED:
            share, low, high = would_prove(consensus, g, e, CONFIDENCE)
            would.append({"gold": g, "max_error": e, "share": number(share), "low": number(low), "high": number(high)})
    shown = {"confidence": CONFIDENCE, "certificates": [], "would": would, "sheet": [str(name) for name in sheet]}
    return shown if would else None


def _certified(votes: Votes, consensus: Consensus, known: Ints) -> dict[str, Any]:
    out: dict[str, Any] = {"confidence": CONFIDENCE, "certificates": [], "would": [], "sheet": [], "note": None}
    if consensus.n_gold:
        if consensus.method not in registry.METHODS or votes.n_votes > MOST_VOTES:
            out["note"] = "The labels were fitted with the gold labels, so these prove nothing of them."
            return out
        consensus = registry.create(consensus.method, **consensus.params).fit(votes).consensus_
        out["note"] = "These are labels of the same method without gold: what was fitted with it proves nothing."
    try:
        found = [certify(consensus, known, e, CONFIDENCE) for e in ALLOWED]
    except CrowdwiseError as error:
        return out | {"note": str(error)}
    more = 2 * int(found[0].gold.sum())
    out["certificates"] = [
        {
            "max_error": c.max_error, "sentence": c.sentence, "share": number(c.share),
            "released": int(c.released.sum()), "left": int((~c.released).sum()), "more": more,
            "with_more": number(c.with_more(more)),
        }
        for c in found
    ]  # fmt: skip
    return out | {
        "gold": int(found[0].gold.sum()), "wrong": int(found[0].wrong),
        "wrong_rate": [number(x) for x in found[0].wrong_rate],
    }  # fmt: skip
