"""Tags: one for every token of a sequence.

============  =======================================================================================================
finding       condition
============  =======================================================================================================
``inexact``   the whole interval of the accuracy is under the median accuracy
``confused``  a tag that is given as another one in ``OFTEN`` of the answers or more
``items``     tokens in doubt
============  =======================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.answer_types.base import Figures, Frame, estimates, in_doubt, line
from crowdwise.answer_types.votes import VoteRules
from crowdwise.core.numerics import Floats
from crowdwise.data.tags import Tags
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust import agreement_coefficients as coefficients
from crowdwise.trust.agreement_coefficients import Patterns
from crowdwise.trust.annotators import less_accurate
from crowdwise.trust.flags import Finding, FindingWords
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, named, percent

OFTEN = 0.2


class TagRules(VoteRules):
    """Tags: votes on tokens, and the spans that they make."""

    answer = "tag"
    noun = "token"
    unit = "sequences"
    scale = None
    kinds: ClassVar = {
        "inexact": INEXACT,
        "confused": FindingWords("Tags that are confused", "Sharpen the guideline between them."),
        "items": IN_DOUBT,
    }

    def agreement(self, answers: Any, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """Percentage, Fleiss' kappa and alpha of tokens; the F1 of spans, averaged over pairs of annotators.

        Spans of two annotators count as found and true (Hripcsak and Rothschild 2005); chance is not taken off.
        """
        patterns, w = Patterns.of_votes(answers.votes), np.eye(answers.votes.n_classes)
        out = estimates(patterns, {
            "percent": coefficients.percent(patterns, w), "fleiss kappa": coefficients.fleiss(patterns, w),
            "krippendorff alpha": coefficients.alpha(patterns, 1.0 - w),
        }, options, answers.sequence)  # fmt: skip
        if answers.scheme != "plain":
            both, each = span_pairs(answers).T
            out["span f1"] = Bootstrap(**options).ratio(both, each, int((each > 0).sum()))
        return out

    def measures_of_codes(self, answers: Any, result: Any, codes: Any) -> Figures:
        out = {"accuracy": metrics.accuracy(result, codes)}
        whole = np.add.reduceat(codes < 0, answers.starts[:-1]) == 0
        if whole.any() and answers.scheme != "plain":
            spans = metrics.span_scores(result, answers, codes)
            out |= {f"span_{name}": spans[name] for name in ("f1", "precision", "recall")}
        return out

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people = frames["annotators"]
        if "accuracy_high" in people:
            accuracy = people["accuracy"]
            weak = less_accurate(accuracy, people["votes"])
            figures = [f"{percent(accuracy[m])} right, the median is {percent(np.median(accuracy))}" for m in weak]
            words = "Less accurate than half of the others"
            yield from line("inexact", words, "annotator", people["annotator"][weak], figures)
        if "confusion" in frames:
            table = frames["confusion"]
            tags, truth = np.unique(table["truth"].astype(str), return_inverse=True)
            labels, label = np.unique(table["label"].astype(str), return_inverse=True)
            counts = np.zeros((len(tags), len(labels)))
            np.add.at(counts, (truth, label), table["count"].astype(float))
            share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)
            cells = [(k, j) for k, j in np.argwhere(share >= OFTEN).tolist() if tags[k] != labels[j]]
            for k, j in sorted(cells, key=lambda cell: -share[cell])[:5]:
                one, other = named("tag", tags[k]), named("tag", labels[j])
                words = f"{one} is tagged {other} in {percent(share[k, j])} of the answers."
                yield Finding("confused", classes=(str(tags[k]), str(labels[j])), line=words, noun="tag")
        yield from in_doubt(frames["items"], self.noun)

    def headline(self, result: Any) -> str:
        spans = len(result.to_frame("spans", kind="dict")["type"]) if "spans" in result.TABLES else 0
        lead = f"{counted(spans, 'span')} in " if spans else ""
        return f"{lead}{counted(len(result.items), 'token')}, {self.unsure(result, 'token')}."


def span_pairs(tags: Tags) -> Floats:
    """Per sequence, over ordered pairs of its annotators: spans that both found, and the mean number of spans."""
    votes, G = tags.votes, len(tags)
    outside = int(np.argmax(votes.classes == "O"))
    sequence = np.asarray(tags.sequence)
    seen, spans = [], []
    for m in range(votes.n_annotators):
        mine = np.flatnonzero(votes.annotator == m)
        codes = np.full(tags.n_tokens, outside, dtype=np.int64)
        codes[votes.item[mine]] = votes.label[mine]
        seen.append(np.unique(sequence[votes.item[mine]]))
        s = tags.spans(codes)
        spans += list(zip(s.sequence.tolist(), s.start.tolist(), s.end.tolist(), s.type.tolist(), strict=True))
    annotators = np.bincount(np.concatenate(seen), minlength=G).astype(np.float64)
    alike: dict[Any, int] = {}
    for span in spans:
        alike[span] = alike.get(span, 0) + 1
    where = np.array([span[0] for span in alike], dtype=np.int64)
    count = np.array(list(alike.values()), dtype=np.float64)
    both = np.bincount(where, weights=count * (count - 1.0), minlength=G)
    each = np.bincount(where, weights=count, minlength=G) * (annotators - 1.0)
    return np.column_stack([both, each])
