"""From what the detectors say to findings and a verdict on every annotator; ``trust.wording`` has the words.

Other answers than votes have the findings of their type (``crowdwise.answer_types``), in the same form. Of votes:

=================  ================================================================  ==========================
kind               condition                                                         verdict
=================  ================================================================  ==========================
``adversary``      worse than chance; or flagged as random although they swap most   drop
                   classes for others (``swaps``)
``spammer``        no better than guessing at their label rates                      drop
``constant``       always says the same class, and skill is not above 0              drop
``camps``          a ring: agrees with itself, not with the rest (``core.collusion``);  look
                   no other verdict on its members without gold
``copiers``        a group that makes the same mistakes                              look
``drift``          got worse over time                                               look
``confusion``      takes one class for another, far more often than the others do    look
``bias``           names a class too often, by ``MATTERS`` of their votes or more    look
``leaning``        the same, by less                                                 (none)
``improved``       got better over time                                              (none)
``few``            the interval of the accuracy is too wide, and nothing was found   unclear
``pair``           two classes taken for one another beyond chance, and surely in    –
                   ``MATTERS`` of the votes that name either (the interval's end);
                   and more often than chance by ``MATTERS`` of that
``panel``          nearly everybody answers everything, and they count as less than  –
                   half as many independent annotators (``trust.effective_votes``)
``items``          labels in doubt                                                   –
``rules``          name one class or nothing in a crowd of such, and gold does not   unclear
                   show that they know
``captured``       those who repeat each other may have decided the consensus        all others unclear
=================  ================================================================  ==========================

Whether there is a finding is decided by the tests in ``crowdwise.trust``, at the level that was asked for. ``MATTERS``
(one vote in twenty, the same bar as for labels in doubt) only keeps differences that are real but too small to act on
out of the way: with many votes a test finds a bias of one vote in a hundred.

When it fails: where most of a crowd errs in the same way, the votes do not show it (see ``trust.annotators``).

Everything that ``crowdwise.trust`` says about some votes and their consensus, run once.

Each detector runs at the same ``level`` (its own stated error rate, see its module). One that cannot run on the votes
at hand, because there is a single class, say, or one vote per item, leaves a sentence in ``notes`` and nothing else.

=============  ===================================================  ==================================================
field          from                                                 holds
=============  ===================================================  ==================================================
``evidence``   ``trust.evidence.read_evidence``                     every vote judged by the others on its item: made
                                                                    once, handed to all who need it
``people``     ``trust.annotators.assess_annotators``               accuracy, skill, weight, drift, flags
``bits``       ``trust.spammers.capacity_spammers``                 information per vote, with interval and verdict
``items``      ``trust.item_review.assess_items``                   items to look at again, classes that are confused
``shared``     ``trust.colluders.shared_mistakes``                  annotators who make the same mistakes
``rings``      ``trust.dependent_groups.find_colluders``            annotators who agree more than honesty allows
``dependent``  ``trust.dependent_groups.find_groups``               annotators who depend on one another
=============  ===================================================  ==================================================

Large crowds: shared mistakes are looked for in a sample of the items (votes x classes up to ``MOST_WORK``), rings among
the 500 annotators with the most votes, groups also (pairs x classes³ up to ``MOST_PAIRED``), shared mistakes and groups
with at most ``MANY`` classes, and capacities are left out, or go without intervals, where annotators x
classes² are too many. ``notes`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from typing import Any

import numpy as np

from crowdwise import registry
from crowdwise.core.annotator_groups import answers, common_items
from crowdwise.core.collusion import Ring, discounted
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.crowd_kind import crowd_kind, rules_in
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, binomial_tail, sample_items
from crowdwise.core.result import Result
from crowdwise.data.figures import Figure, draw_rows
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.reading import read
from crowdwise.trust.annotators import AnnotatorReport, assess_annotators
from crowdwise.trust.colluders import SharedMistakes, shared_mistakes
from crowdwise.trust.dependent_groups import Colluders, DependentGroups, effective_votes, find_colluders, find_groups
from crowdwise.trust.evidence import check_match, read_evidence
from crowdwise.trust.flags import Finding, FindingKind, FindingWords, Flag, FlagKind, Verdict
from crowdwise.trust.item_review import ItemReport, assess_items
from crowdwise.trust.spammers import Spammers, capacity_spammers, channel_capacity
from crowdwise.trust.wording import FINDINGS, counted, folded, percent, sentence

MOST_WORK = 800_000
"""Votes x classes among which shared mistakes are looked for; a sample of the items where there are more."""
MOST_FLOPS = 4e9
"""Pairs of votes x classes² x 6 degrees of ease in that search: fewer pairs where there are many classes."""
MANY = 20
"""Classes up to which pairs of annotators are looked at label by label: the work goes with their square."""
MOST_PAIRED = 3e6
"""Pairs of annotators x classes³ up to which groups are looked for among all; else among those with the most votes."""
MOST_DRAWN, MOST_CELLS = 20_000, 1_000_000
"""Annotators x classes² up to which capacities get intervals (200 draws of every matrix), and are worked out at all."""
STEPS = ("evidence", "annotators", "capacity", "items", "shared mistakes", "rings", "groups")
Progress = Callable[[str], None]
"""Called with the name of each step before it begins."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """What the detectors found; ``None`` where one could not run (see the module)."""

    votes: Votes
    consensus: Consensus
    level: float
    evidence: LeaveOneOut | None = None
    people: AnnotatorReport | None = None
    bits: Spammers | None = None
    items: ItemReport | None = None
    shared: SharedMistakes | None = None
    rings: Colluders | None = None
    dependent: DependentGroups | None = None
    with_gold: bool = False
    """Whether gold labels were given."""
    notes: dict[str, str] = field(default_factory=dict)
    """Step -> why it was left out, or what it looked at."""

    @property
    def ring(self) -> set[Any]:
        """The members of rings."""
        return set(self.rings.annotators) if self.rings is not None else set()

    @property
    def camp(self) -> set[Any]:
        """The members of rings, and those who surely agree with one."""
        return set(self.rings.names[self.rings.flagged | (self.rings.low > 0.0)].tolist()) if self.rings else set()

    @property
    def copies(self) -> list[list[Any]]:
        """Groups who always give the same answers, and are no ring."""
        return [self.rings.names[ring.members].tolist() for ring in self.rings.copies] if self.rings is not None else []

    @property
    def captured(self) -> bool:
        """Whether those who repeat each other may have decided the consensus, so that it convicts the others.

        A group of half of the annotators or more; or a ring whose votes are the labels more often than those of the
        others are.
        """
        if any(2 * len(members) >= self.votes.n_annotators for members in self.groups):
            return True
        if self.rings is None or not self.rings.flagged.any() or self.with_gold:
            return False
        agrees = self.votes.label == self.consensus.label_codes[self.votes.item]
        inside = self.rings.flagged[self.votes.annotator]
        return bool(agrees[inside].mean() >= agrees[~inside].mean())

    @property
    def groups(self) -> list[list[Any]]:
        """Annotators who repeat each other, the largest group first: rings, copies, and those who share mistakes."""
        out = [members for members in (self.shared.groups if self.shared is not None else []) if len(members) > 1]
        out += [members for members in self.copies if not any(set(members) <= set(others) for others in out)]
        out += self.rings.groups if self.rings is not None else []
        place = {name: m for m, name in enumerate(self.votes.annotators.tolist())}
        return sorted(out, key=lambda members: (-len(members), place[members[0]]))


@checked
def inspect(
    votes: Votes, consensus: Consensus, *, gold: Any = None, level: Fraction = 0.05, progress: Progress | None = None
) -> Inspection:
    """Run every detector that the votes allow; parameters as in :func:`crowdwise.diagnose`, steps are ``STEPS``."""
    notes: dict[str, str] = {}
    M, K = votes.n_annotators, votes.n_classes
    if K >= 2:
        check_match(votes, consensus)

    def attempt(step: str, work: Callable[[], Any]) -> Any:
        if progress is not None:
            progress(step)
        try:
            return work()
        except InputError as error:
            notes[step] = str(error)
            return None

    rings = attempt("rings", lambda: _rings(votes, level))
    every = votes
    if rings is not None and (rings.rings or rings.copies):  # one voice where votes judge each other
        votes = discounted(votes, [*rings.rings, *rings.copies])
    evidence = attempt("evidence", lambda: read_evidence(votes, consensus, gold))
    found: dict[str, Any] = {"evidence": evidence, "rings": rings, "with_gold": gold is not None}
    if evidence is not None:
        judge = {"level": level, "evidence": evidence}
        capacity = partial(channel_capacity, tol=1e-3, max_iter=300) if M * K * K <= MOST_CELLS else None
        found["people"] = attempt("annotators", lambda: assess_annotators(votes, consensus, capacity=capacity, **judge))
        found["items"] = attempt("items", lambda: assess_items(votes, consensus, **judge))
    if M * K * K <= MOST_DRAWN and K >= 2:
        found["bits"] = attempt("capacity", lambda: capacity_spammers(votes, consensus, level=level))
    elif K >= 2:
        without = "have no intervals" if M * K * K <= MOST_CELLS else "were not computed"
        notes["capacity"] = f"{M:,} annotators x {K:,}² classes: capacities {without}."
    rows = sample_items(np.diff(votes.indptr), MOST_WORK // max(K, 1), 0)
    all_items, posterior = len(rows) == len(votes), consensus.independent_posterior
    some, q = (votes, posterior) if all_items else (votes[rows], posterior[rows])
    if not all_items:
        notes["shared mistakes"] = f"Looked for in {len(rows):,} of {len(votes):,} items, drawn at random."
    if rings is not None and rings.rings:  # their mistakes in common are known
        some = some.select(~rings.flagged[some.annotator])
    found["shared"] = attempt("shared mistakes", lambda: _shared(some, q, level))
    found["dependent"] = attempt("groups", lambda: _dependent(every, level, notes))
    return Inspection(every, consensus, level, notes=notes, **found)


def _needs(votes: Votes, annotators: int, few_classes: bool = False) -> None:
    M, K = votes.n_annotators, votes.n_classes
    if K < 2:
        raise InputError("There is a single class: annotators cannot be compared.")
    if M < annotators:
        raise InputError(f"There are {M} annotators: pairs are compared from {annotators} on.")
    if not (np.diff(votes.indptr) > 1).any():
        raise InputError("No item has two votes: pairs of annotators cannot be compared.")
    if (np.bincount(votes.annotator) > 1).sum() < 2:
        raise InputError("Hardly anybody has voted twice: pairs of annotators have one item in common at most.")
    if few_classes and K > MANY:
        raise InputError(f"There are {K} classes: with more than {MANY}, pairs are not compared this way.")


def _shared(votes: Votes, posterior: Floats, level: float) -> SharedMistakes:
    _needs(votes, 3, few_classes=True)
    most = int(MOST_FLOPS / (6 * votes.n_classes**2))
    return shared_mistakes(votes, posterior, level=level, max_pairs=min(max(most, 200_000), 2_000_000))


def _rings(votes: Votes, level: float) -> Colluders:
    _needs(votes, 3)
    return find_colluders(votes, level=level)


def _dependent(votes: Votes, level: float, notes: dict[str, str]) -> DependentGroups:
    _needs(votes, 3, few_classes=True)
    M, K = votes.n_annotators, votes.n_classes
    if M * M / 2.0 * K**3 > MOST_PAIRED and len(common_items(answers(votes), M, K)[0]) * K**3 > MOST_PAIRED:
        most = max(int(np.sqrt(2.0 * MOST_PAIRED / K**3)), 3)
        busiest = np.argsort(-np.bincount(votes.annotator, minlength=M), kind="stable")[:most]
        votes = votes.only(votes.annotators[np.sort(busiest)].tolist())
        notes["groups"] = f"Looked for among the {most:,} annotators with the most votes, of {M:,}."
    return find_groups(votes, level=level)


__all__ = ["Diagnosis", "Finding", "FindingKind", "Verdict", "diagnose"]

MATTERS = LEVEL = 0.05
USEFUL = 0.2
"""The skill under which an annotator is flagged as random (``trust.annotators``); the same bar for being wrong."""
NAMED = 50
"""Items in doubt that a finding names."""
UNKNOWN = (float("nan"), float("nan"), float("nan"))
RANK = {name: place for kinds in (FindingKind, Verdict) for place, name in enumerate(kinds)}
"""The place of each finding and each verdict, the most pressing first."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What was found, the most pressing first, and a verdict on every annotator.

    Attributes
    ----------
    findings
        In the order of ``kinds``.
    verdicts
        Annotator -> :class:`Verdict`.
    kinds
        The kinds of findings that there are for such answers, with their titles and advice.
    result
        The consensus, or its like for other answer types.
    expected, expected_interval
        The share of labels, but for those given as gold, that are expected to be right, and its 95 % interval:
        ``consensus.expected_accuracy()``. NaN where annotators who repeat each other may have decided the labels, and
        for other answers than votes.
    seen
        What the detectors returned; ``None`` for other answers than votes.
    """

    findings: tuple[Finding, ...]
    verdicts: dict[Any, Verdict]
    kinds: Mapping[str, FindingWords]
    result: Any
    expected: float = UNKNOWN[0]
    expected_interval: tuple[float, float] = UNKNOWN[1:]
    seen: Inspection | None = None

    @property
    def inspection(self) -> Inspection:
        """What the detectors returned, of votes."""
        if self.seen is None:
            raise InputError(f"The detectors are for votes, and these are {self.result.answer_type}.")
        return self.seen

    def __repr__(self) -> str:
        drop, look = (f"{len(self.by_verdict(verdict)):,}" for verdict in (Verdict.DROP, Verdict.LOOK))
        sure = f", {self.expected_words} of the labels expected to be right" if np.isfinite(self.expected) else ""
        people, findings = counted(len(self.verdicts), "annotator"), counted(len(self.findings), "finding")
        return f"Diagnosis({people}: {drop} to drop, {look} to look at; {findings}{sure})"

    @property
    def expected_words(self) -> str:
        """The share of labels that are expected to be right, with its interval, for sentences."""
        low, high = self.expected_interval
        return f"{percent(self.expected)} ({percent(low).rstrip('%')} to {percent(high)})"

    def __str__(self) -> str:
        """The counts, and a line for each finding; those that say the same of several annotators are one line."""
        lines = [line for kind in self.kinds for line in folded(self.of_kind(kind))]
        return "\n".join([repr(self), *(f"- {line}" for line in lines)])

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        listed = "".join(f"<li>{escape(line.removeprefix('- '))}</li>" for line in lines)
        return f"<p>{escape(title)}</p>\n<ul>{listed}</ul>"

    def of_kind(self, kind: FindingKind | str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def names(self, kind: FindingKind | str) -> list[Any]:
        """All annotators, classes or items that a kind of finding names."""
        return [name for finding in self.of_kind(kind) for name in finding.names]

    def sentences(self) -> list[str]:
        """One sentence for each finding."""
        return [sentence(finding) for finding in self.findings]

    def plot(self) -> Figure:
        """A figure of the annotators: of votes their accuracy, coloured by verdict (drop red, look orange, keep green,
        few votes grey)."""
        if self.seen is None or self.seen.people is None:
            figure: Figure = self.result.plot()
            return figure
        names, columns = self.seen.votes.annotators, self.seen.people.columns
        order = np.argsort(-columns["accuracy"], kind="stable")
        values, low, high = (columns[name][order] for name in ("accuracy", "accuracy_low", "accuracy_high"))
        tones = [self.verdicts[name].value for name in names[order].tolist()]
        return draw_rows("Annotators: accuracy, by verdict", names[order].tolist(), values, low, high, tones)

    def review(self, kind: str | None = None) -> Any:
        """The items to review, the most doubtful first: those that the headline of a report counts, of votes.

        ``kind`` is that of the table: ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``.
        """
        report, kind = self.inspection.items, kind or self.inspection.votes.kind
        if report is None or self.inspection.captured:
            return make_frame({"item": self.inspection.votes.items[:0]}, kind)
        at = report.order(suggested=True)
        columns = {name: report.columns[name][at] for name in ("label", "probability", "right", "votes")}
        return make_frame({"item": report.names[at], **columns, "why": report.why(at)}, kind)

    def by_verdict(self, verdict: Verdict | str) -> list[Any]:
        """The annotators with a verdict."""
        return [name for name, given in self.verdicts.items() if given == verdict]


def diagnose(
    answers: Any, result: Any = None, *, gold: Any = None, level: float = LEVEL, progress: Progress | None = None
) -> Diagnosis:
    """What is wrong with these answers. Of votes: spammers, copiers, drift, classes easily confused, labels in doubt.

    Parameters
    ----------
    answers, result
        The answers (also a dataframe, a file or a dataset folder, as :func:`crowdwise.aggregate` takes them), and the
        result of any method for them; by default that of the default method. Other answers than votes are judged by
        the 95 % intervals of their result (``crowdwise.answer_types`` has the rules of each type).
    gold
        Of votes: true classes to judge by where they are known, as a mapping from item to class, or N codes with -1 for
        unknown.
    level
        Of votes: the error rate of each detector.
    progress
        Called with the name of each step before it begins.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    >>> found = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> sorted(found.names("spammer")) == sorted(crowd.votes.annotators[crowd.parameters["spammers"]].tolist())
    True
    """
    answers = read(answers).table
    kind = answers.answer_type
    if isinstance(answers, Votes):
        if result is None:
            result = registry.create(registry.DEFAULT).fit(answers, gold).consensus_
        return concluded(inspect(answers, result, gold=gold, level=level, progress=progress))
    useless = [name for name, given in (("gold", gold is not None), ("level", level != LEVEL)) if given]
    if useless:
        raise ParameterError(
            f"{' and '.join(useless)}: {kind} are judged by the intervals of their result. Leave it out."
        )
    if result is None:
        result = registry.create(registry.default_method(kind), kind).fit(answers).consensus_
    if not isinstance(result, Result) or result.answer_type != kind:
        raise InputError(f"Expected the result of a fit to {kind} and found {type(result).__name__}.")
    return diagnose_answers(kind, result)


def concluded(seen: Inspection) -> Diagnosis:
    """The findings and verdicts of an inspection."""
    findings = [*_about_annotators(seen), *_about_groups(seen), *_about_pairs(seen), *_about_items(seen)]
    findings += _about_panel(seen)
    same = {name for members in seen.copies for name in members}  # who count as one, and so have few votes each
    findings = [
        finding for finding in findings if finding.kind is not FindingKind.FEW or finding.annotators[0] not in same
    ]
    if seen.captured:  # a captured consensus convicts the innocent: no verdict rests on it
        kept = (FindingKind.CAPTURED, FindingKind.CAMPS, FindingKind.COPIERS)
        findings = [finding for finding in findings if finding.kind in kept]
    elif seen.ring and not seen.with_gold:  # which camp is right only gold shows
        findings = [
            finding for finding in findings if len(finding.annotators) != 1 or finding.annotators[0] not in seen.camp
        ]
    start = Verdict.KEEP if seen.people is not None and not seen.captured else Verdict.UNCLEAR
    value, *ends = UNKNOWN if seen.captured else seen.consensus.expected_accuracy()
    return _judged(seen.consensus, findings, FINDINGS, start, value, (ends[0], ends[1]), seen)


def _judged(
    result: Any, found: Iterable[Finding], kinds: Mapping[str, FindingWords], start: Verdict, *about: Any
) -> Diagnosis:
    """A diagnosis of findings in the order of their kinds, with a verdict on every annotator, ``start`` for most."""
    place = {kind: n for n, kind in enumerate(kinds)}
    findings = tuple(sorted(found, key=lambda finding: place[finding.kind]))
    verdicts = dict.fromkeys(result.annotators.tolist(), start)
    for finding in findings:
        verdict = kinds[finding.kind].verdict or Verdict.KEEP
        for name in finding.annotators:
            verdicts[name] = min(verdict, verdicts[name], key=RANK.__getitem__)
    return Diagnosis(findings, verdicts, kinds, result, *about)


def diagnose_answers(kind: str, result: Any) -> Diagnosis:
    """The findings about other answers than votes: what their type finds in the tables of the result."""
    frames = {
        name: {column: np.asarray(values) for column, values in result.to_frame(name, kind="dict").items()}
        for name in result.TABLES
    }
    rules = registry.ANSWER_TYPES[kind].rules
    return _judged(result, rules.findings(frames), rules.kinds, Verdict.KEEP)


def _about_panel(seen: Inspection) -> list[Finding]:
    votes = seen.votes
    if votes.n_classes < 2 or crowd_kind(votes, fewest=5) != "panel":
        return []
    worth = effective_votes(votes, seen.consensus)
    if 2.0 * worth.effective >= worth.annotators:
        return []
    return [Finding(FindingKind.PANEL, numbers=asdict(worth) | {"effective": worth.effective})]


def _about_annotators(seen: Inspection) -> list[Finding]:
    report = seen.people
    if report is None or seen.evidence is None:
        return []
    out: list[Finding] = []
    names, classes, columns = report.names.tolist(), seen.votes.classes.tolist(), report.columns
    level = seen.level / max(seen.votes.n_annotators, 1)
    measures = ("votes", "accuracy", "accuracy_low", "accuracy_high", "skill_low", "bias", "drift")
    for m in np.argsort(-columns["suspicion"], kind="stable").tolist():
        flags = report.flags[m]
        pairs = swaps(seen.evidence.counts[m], level)[:3] if Flag(FlagKind.RANDOM) in flags else []
        if pairs:
            swapped = (Flag(FlagKind.CONFUSION, (classes[k], classes[said])) for k, said in pairs)
            flags = (*swapped, *(flag for flag in flags if flag.kind is not FlagKind.RANDOM))
        numbers = {name: float(columns[name][m]) for name in measures if name in columns}
        kinds_of = _kinds(flags, numbers, consistent=bool(pairs))
        out += [Finding(kind, (names[m],), numbers=numbers, flags=behind) for kind, behind in kinds_of]
    unknown = rules_in(seen.votes) & ~(columns["skill_low"] > 0.0) & np.array([not flags for flags in report.flags])
    if unknown.any():
        rules = tuple(report.names[unknown].tolist())
        out.append(Finding(FindingKind.RULES, rules, numbers={"annotators": len(unknown)}))
    return out


def swaps(counts: Floats, level: float) -> list[tuple[int, int]]:
    """(class, what is said instead): most of the classes are taken for one and the same wrong class each.

    ``counts`` are one annotator's K x K (truth, label), every vote judged by the others. With h[l] the share of label l
    among their votes, one who answers from habit says l with probability h[l], and one who takes k for l
    with probability s, s = ``USEFUL``, says it with s + (1 - s) h[l]. A class is swapped where no more than that is
    rejected at ``level``, over all K (K - 1) cells (Bonferroni). Empty unless the swapped classes have more than half
    of the votes and go to more than one class: else it is a habit, not a swap.
    """
    K = len(counts)
    n = counts.sum(axis=1)
    habit = counts.sum(axis=0) / max(float(n.sum()), 1e-9)
    bar = np.clip(USEFUL + (1.0 - USEFUL) * habit, 0.0, 1.0 - 1e-9)
    p = binomial_tail(counts, np.broadcast_to(n[:, None], counts.shape), bar[None])
    p[np.arange(K), np.arange(K)] = 1.0
    said = p.argmin(axis=1)
    swapped = np.flatnonzero(p[np.arange(K), said] * K * max(K - 1, 1) <= level)
    if 2.0 * n[swapped].sum() <= n.sum() or len(set(said[swapped].tolist())) < 2:
        return []
    order = swapped[np.argsort(-n[swapped], kind="stable")]
    return [(int(k), int(said[k])) for k in order]


def _kinds(
    flags: tuple[Flag, ...], numbers: dict[str, float], consistent: bool
) -> list[tuple[FindingKind, tuple[Flag, ...]]]:
    """The findings about one annotator, with the flags behind each; ``consistent``: wrong in a consistent way."""
    confused = tuple(flag for flag in flags if flag.kind is FlagKind.CONFUSION)
    out: list[tuple[FindingKind, tuple[Flag, ...]]] = [(FindingKind.ADVERSARY, confused)] if consistent else []
    for flag in flags:
        if flag.kind is FlagKind.WORSE_THAN_CHANCE:
            out.append((FindingKind.ADVERSARY, (flag, *confused)))
        elif flag.kind is FlagKind.RANDOM:
            out.append((FindingKind.SPAMMER, (flag,)))
        elif flag.kind is FlagKind.CONSTANT:  # with skill above 0 the rest of their votes goes with the truth
            out.append((FindingKind.BIAS if numbers["skill_low"] > 0.0 else FindingKind.CONSTANT, (flag,)))
        elif flag.kind is FlagKind.DRIFT:
            out.append((FindingKind.DRIFT if flag.change < 0 else FindingKind.IMPROVED, (flag,)))
        elif flag.kind is FlagKind.FEW_VOTES:
            out.append((FindingKind.FEW, (flag,)))
        elif flag.kind is FlagKind.BIAS:
            out.append((FindingKind.BIAS if numbers["bias"] >= MATTERS else FindingKind.LEANING, (flag,)))
    kinds = {kind for kind, _ in out}
    if any(FINDINGS[kind].verdict is Verdict.DROP for kind in kinds):  # the rest follows from it
        return [entry for entry in out if FINDINGS[entry[0]].verdict is Verdict.DROP or entry[0] is FindingKind.DRIFT]
    out += [(FindingKind.CONFUSION, confused)] if confused else []
    if any(FINDINGS[kind].verdict is Verdict.LOOK for kind, _ in out):  # a test found something: the votes were enough
        out = [entry for entry in out if entry[0] is not FindingKind.FEW]
    return out


def _about_groups(seen: Inspection) -> list[Finding]:
    out = [_camps(seen.votes, ring) for ring in (seen.rings.rings if seen.rings is not None else [])]
    for members in seen.groups:
        inside = set(members)
        shared = [x for a, b, x in (seen.shared.edges if seen.shared is not None else []) if {a, b} <= inside]
        if not inside <= seen.ring:
            out.append(Finding(FindingKind.COPIERS, tuple(members), numbers={"shared": max(shared)} if shared else {}))
    if seen.captured:
        size = max((len(members) for members in seen.groups), default=0)
        out.append(Finding(FindingKind.CAPTURED, numbers={"size": size, "annotators": seen.votes.n_annotators}))
    return out


def _camps(votes: Votes, ring: Ring) -> Finding:
    """A ring and the rest, with the items on which they differ, those first that most votes speak about."""
    inside = np.isin(votes.annotator, ring.members)
    tables = [
        np.bincount(votes.item[at] * votes.n_classes + votes.label[at], minlength=len(votes) * votes.n_classes)
        .reshape(len(votes), -1) for at in (inside, ~inside)
    ]  # fmt: skip
    one, other = tables
    differ = (one.argmax(axis=1) != other.argmax(axis=1)) & (one.any(axis=1)) & (other.any(axis=1))
    items = np.flatnonzero(differ)
    items = items[np.argsort(-np.minimum(one.max(axis=1), other.max(axis=1))[items], kind="stable")]
    numbers = {
        "share": ring.share, "inside": ring.inside, "outside": ring.outside, "items": len(items),
        "others": len(np.unique(votes.annotator[~inside])),
    }  # fmt: skip
    names = tuple(votes.annotators[ring.members].tolist())
    return Finding(FindingKind.CAMPS, names, items=tuple(votes.items[items[:NAMED]].tolist()), numbers=numbers)


def _about_pairs(seen: Inspection) -> list[Finding]:
    if seen.items is None:
        return []
    return [
        Finding(FindingKind.PAIR, classes=pair.classes, numbers=pair.numbers)
        for pair in seen.items.ambiguous()
        if pair.low >= MATTERS and not pair.share < (1.0 + MATTERS) * pair.expected  # NaN: nothing to compare with
    ]


def _about_items(seen: Inspection) -> list[Finding]:
    report = seen.items
    if report is None or not report.columns["suggested"].any():
        return []
    order = report.order(suggested=True)
    return [
        Finding(
            FindingKind.ITEMS,
            items=tuple(report.names[order[:NAMED]].tolist()),
            numbers={
                "suggested": len(order),
                "items": len(report.names),
                "held": report.held,
            },
            reasons=tuple(report.doubt(n) for n in order[:3].tolist()),
        )
    ]
