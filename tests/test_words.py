"""One word for one thing: retired words stay out of code, documentation, help texts and report templates.

The words on the left were a dialect; those on the right are what the field says.
"""

from __future__ import annotations

import re
from pathlib import Path

from conftest import ROOT

RETIRED = {
    r"foretell\w*|foretold": "predict held-out votes",
    r"left-out votes": "held-out votes",
    r"company_scores|company scores": "leave_one_out_scores",
    r"whom to believe|who to believe|believe whom": "reliability of annotators",
    r"strangers?": "unseen annotators",
    r"told(?=\s*[=:])": "progress=",
    r"ledgers?": "vote_store",
    r"shaken": "random_start",
    r"anew": "again; refit",
    r"young streams?": "early stream",
    r"beyond classes|answers beyond|BEYOND|find_beyond|create_beyond": "other answer types",
    r"same_or_different": "similarities",
    r"LinkedConsensus": "GraphConsensus",
    r"maximises nothing step by step": "no convergence trace: an average of models",
    r"They judge nobody": "used for evaluation only",
    r"A spammer\.": "no better than guessing at their label rates",
    r"The same of \w+": "Also: ...",
    r"95 ?% from": "95% CI low-high",
    r"what votes tell|votes can tell": "information",
    r"how(?==)": "strategy=",
    r"Worded|worded\(spell\)|AS_USUAL|LiveRoll|hastened|hindrance|undoubted|counted_as": "what the thing is",
    r"Not as the interface says|of no annotator|is no address|is no whole": "Invalid request; is truncated",
    r"Hardly knows|Known half as well|Joins what does not": "Near-chance annotator; over-merges",
    r"(?i:whoever|whichever|nobody|somebody|doors?)": "an annotator; all; none; the noun",
    r"(?i:(?<!Learning )whom)": "the noun: annotators to look at",
    r"(?i:mend(?:s|ed|ing)?)": "fix; correct",
    r"(?i:pacts?)": "collusion",
    r"(?i:(?<!there )(?:is|are) no (?:annotator|class(?:es)?|numbers?|votes?|estimates?|exports?|probabilities"
    r"|names?|tables?|folder|mask|tags?|dates?|labels?|data|plain|object))": "is not a ...",
    r"(?i:(?:campaign|it) stands differently|how (?:a|the) campaign stands)": "status",
}
"""Pattern -> what to write."""

LOOKED_AT = {
    "src/crowdwise": ("*.py", "*.html", "*.css", "*.js", "*.j2"),
    "docs": ("*.md", "*.py", "*.ipynb"),
    "examples": ("*.py",),
}


def files() -> list[Path]:
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff")]
    for folder, patterns in LOOKED_AT.items():
        found += [path for pattern in patterns for path in sorted((ROOT / folder).rglob(pattern))]
    return found


def retired(text: str) -> list[tuple[int, str, str]]:
    """(line, what is there, what to write) for each retired word in a text."""
    found = []
    for pattern, better in RETIRED.items():
        for match in re.finditer(rf"(?:{pattern})(?!\w)", text):
            if re.match(r"[\w-]", text[match.start() - 1 : match.start()]):  # faster than looking back everywhere
                continue
            found.append((text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better))
    return sorted(found)


def test_no_retired_word_is_used() -> None:
    complaints = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}; write {better!r}."
        for path in files()
        for line, word, better in retired(path.read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(complaints)


def test_a_retired_word_is_found() -> None:
    text = "How well it foretells\nvotes of strangers (95 % from 1 to 2), told = None, and BEYOND."
    assert [(line, word) for line, word, _ in retired(text)] == [
        (1, "foretells"),
        (2, "95 % from"),
        (2, "BEYOND"),
        (2, "strangers"),
        (2, "told"),
    ]
    assert retired("They said what was told to them, beyond doubt; a restrangered word; show=1.") == []
