"""When to stop: an item that needs no more votes, a campaign that is good enough (``docs/active.md``).

**An item** is finished when its best class is probable enough, or when no vote is worth its price: a vote of m on n is
worth ``stake`` times its expected error reduction. **A campaign** stops when the budget is spent, or when the labels
are as accurate as they should be, by an estimate or by a proof.

**The estimate** needs no truth and is made in two ways: right labels are counted in crowds drawn from the posterior
(:mod:`crowdwise.active.accuracy_estimate`), which allows for few votes; and the posterior is corrected for votes that
err together (:mod:`crowdwise.core.dependence`), which allows for hard items. The estimate is the second, the interval
holds those of both.

**A proof** has gold labels of random items that the model never sees (:class:`Proof`). With c = floor(max_error N), m
gold labels and e of these labels wrong, P(E <= e | c + 1 of N are wrong) is hypergeometric and has to be at most the
level, (1 - confidence) / (j (j + 1)) in look j: these add up to 1 - confidence, so that no look ever proves what is
false with that probability, and stopping at the first that succeeds is allowed. What can be chosen after a look needs a
new draw, which is independent of what earlier ones showed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.active import accuracy_estimate as accuracy
from crowdwise.active import acquisition
from crowdwise.active.state import State, allowed
from crowdwise.core.constraints import (
    Bounds,
    Count,
    CountFromZero,
    Fraction,
    Parameterised,
    Positive,
    RandomState,
    checked,
    declared,
)
from crowdwise.core.dependence import accuracy_interval
from crowdwise.core.numerics import decide
from crowdwise.core.prediction_sets import Inside
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.online.stream import Online

MIN_PAIRS = 30
"""With fewer pairs of votes on the same item the rate of agreement is too uncertain to say anything about a crowd."""
LOOK_AGAIN, IN_ANY_CASE = 1.3, 3.0
"""How much the votes must have grown before gold labels are compared with the labels again: where the model expects no
more wrong labels than are allowed, and in any case. Looks are costly, since each has a part of the level."""

Mask = npt.NDArray[np.bool_]
Probability = Annotated[float, Bounds(above=0, maximum=1)]


@dataclass(frozen=True)
class AccuracyEstimate:
    """The accuracy of labels, estimated without truth."""

    accuracy: float
    low: float
    high: float
    items: int
    """How many items have votes and no known class: the estimate is about their labels."""
    pairs: int = 0
    """How many pairs of votes there are on the same item; votes on items with known classes count, too."""
    known: bool = True
    """Whether the votes carry information about the accuracy; if not, it is that of the prior over crowds."""
    rho: float = 0.0
    """The correlation of votes on an item that it allows for."""


class Sentence(str):
    """A text in English that a page can say in another language: its pattern, and what is put into it."""

    pattern: str
    values: dict[str, str]

    def __new__(cls, pattern: str, **values: str) -> Sentence:
        made = super().__new__(cls, pattern.format(**values))
        made.pattern, made.values = pattern, values
        return made

    @staticmethod
    def parts(text: str) -> list[Any]:
        """Pattern and values of a text, as JSON has them."""
        if not isinstance(text, Sentence):
            return [text, {}]
        return [text.pattern, {name: Sentence.parts(one) for name, one in text.values.items()}]


@declared
class StopRule(Parameterised):
    """When a campaign, or an item of it, needs no more votes. What is ``None`` does not matter.

    Parameters
    ----------
    probability
        An item is finished when its best class is at least so probable.
    stake
        The value of a right label, in the currency of the prices: an item is finished when no vote is worth its price.
    min_votes, max_votes
        An item is not finished with fewer votes (a single one is not confirmed), and always with so many.
    budget
        The campaign stops when so much is spent.
    target
        The campaign stops when the lower end of the estimated accuracy is at least this.
    max_error, confidence
        The campaign stops when random gold labels prove, with this confidence, that at most so many labels are wrong.
    """

    probability: Probability | None = 0.9
    stake: Positive | None = None
    min_votes: CountFromZero = 2
    max_votes: Count | None = None
    budget: Positive | None = None
    target: Probability | None = None
    max_error: Inside | None = None
    confidence: Inside = 0.95

    def __post_init__(self) -> None:
        self.check_parameters()

    def finished(self, state: State) -> npt.NDArray[np.bool_]:
        """N: which items need no more votes."""
        out = np.zeros(len(state.posterior), dtype=bool)
        if self.probability is not None:
            out |= state.corrected.max(axis=1) >= self.probability
        if self.stake is not None:
            out |= ~worth_asking(state, self.stake)
        out &= state.votes_per_item >= self.min_votes
        if self.max_votes is not None:
            out |= state.votes_per_item >= self.max_votes
        return out

    def why_stop(
        self, spent: float, cheapest: float, online: Online, found: AccuracyEstimate | None = None
    ) -> str | None:
        """Why the campaign should stop, in words; ``None`` where it should go on.

        ``found``: the accuracy, where it has been estimated already.
        """
        return self.why_spent(spent, cheapest) or self.why_enough(online, found)

    def why_spent(self, spent: float, cheapest: float) -> Sentence | None:
        """Why no more votes can be paid, in words; ``None`` where one can be, or where there is no budget."""
        if self.budget is None or spent + cheapest <= self.budget * (1.0 + 1e-12):
            return None
        pattern = "the budget is spent: {spent} of {budget}, and a vote costs {price} at least"
        return Sentence(pattern, spent=f"{spent:g}", budget=f"{self.budget:g}", price=f"{cheapest:g}")

    def why_enough(self, online: Online, found: AccuracyEstimate | None = None) -> Sentence | None:
        """Why the labels are accurate enough, in words; ``None`` where they are not, or where there is no target."""
        if self.target is None or not online.store.n_votes:
            return None
        confidence = online.posterior[: len(online.store.items)].max(axis=1).mean()
        if confidence < self.target:  # no estimate is above the model's own confidence, or hardly
            return None
        found = estimate_accuracy(online) if found is None else found
        if not (found.known and found.low >= self.target):
            return None
        pattern = "the labels are accurate enough: {low} to {high}, and {target} was asked"
        return Sentence(pattern, low=f"{found.low:.3f}", high=f"{found.high:.3f}", target=f"{self.target:g}")


@dataclass(frozen=True)
class Look:
    """A comparison of all labels with the gold labels of a draw, after so many votes, and whether it proved enough."""

    at: int
    draw: int
    max_error: float
    confidence: float
    labels: int
    gold: int
    wrong: int
    proven: bool


@dataclass(frozen=True)
class Proof:
    """Random items whose gold labels the model never sees, and the looks at them; see the top of this file."""

    drawn: tuple[int, ...] = ()
    """Codes of the items."""
    known: Mapping[int, int] = field(default_factory=dict)
    """Item -> class, in codes."""
    items: int = 0
    """How many items there were."""
    draw: int = 0
    looks: tuple[Look, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> Proof:
        """From what :meth:`facts` gave."""
        if facts is None:
            return cls()
        looks = tuple(Look(**look) for look in facts["looks"])
        return cls(tuple(facts["drawn"]), dict(facts["known"]), int(facts["items"]), int(facts["draw"]), looks)

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "drawn": list(self.drawn), "known": [list(pair) for pair in self.known.items()], "items": self.items,
            "draw": self.draw, "looks": [asdict(look) for look in self.looks],
        }  # fmt: skip

    def drawn_anew(self, n: int, taught: Mask, rng: np.random.Generator) -> Proof:
        """A new draw of n of all items but those whose class the model knows; labels of items drawn again stay."""
        free = np.flatnonzero(~taught)
        if n > len(free):
            raise InputError(f"There are {len(free):,} items without a known class, and {n:,} were asked for.")
        drawn = tuple(np.sort(rng.choice(free, n, replace=False)).tolist())
        known = {code: k for code, k in self.known.items() if code in set(drawn)}
        return Proof(drawn, known, len(taught), self.draw + 1, self.looks)

    def with_gold(self, known: Mapping[int, int]) -> Proof:
        """With the classes of some of the items that were drawn."""
        odd = len(set(known) - set(self.drawn))
        if odd:
            raise InputError(
                f"{odd:,} of these items were not drawn, and gold labels that were chosen prove nothing: give the "
                "labels of the drawn items alone."
            )
        changed = [code for code, k in known.items() if self.known.get(code, k) != k]
        if changed and any(look.draw == self.draw for look in self.looks):
            raise InputError(
                f"{len(changed):,} gold labels are not what they were when the labels were compared with them: draw "
                "again."
            )
        return replace(self, known={**self.known, **known})

    def why_not(self, rule: StopRule, votes_per_item: npt.NDArray[Any], shut: Mask, taught: Mask) -> str | None:
        """Why labels cannot be compared with the gold labels yet; ``None`` where they can."""
        if not self.drawn:
            return f"draw items at random, and label them ({gold_to_stop(rule, len(taught)):,} are likely to be enough)"
        if missing := len(self.drawn) - len(self.known):
            return f"{missing:,} of the {len(self.drawn):,} items drawn have no gold label yet"
        if self.items < len(taught):
            return f"{len(taught) - self.items:,} items were added after the draw: draw again"
        if taught[list(self.drawn)].any():
            return "the model was told the class of items that were drawn: draw again"
        if any(
            look.draw == self.draw and (look.max_error, look.confidence) != (rule.max_error, rule.confidence)
            for look in self.looks
        ):
            return "max_error or confidence was changed after a look at these gold labels: draw again"
        empty = int(((votes_per_item == 0) & ~shut & ~taught).sum())
        return f"{empty:,} items have no vote yet" if empty else None

    def due(self, at: int, awaited: int, hopeful: bool) -> bool:
        """Whether the labels after so many votes should be compared with the gold labels; ``hopeful``: the model
        expects no more wrong labels than are allowed. Labels that were proven are looked at again when the answers that
        were still out have come."""
        last = self.looks[-1] if self.looks else None
        if last is not None and last.draw == self.draw and last.proven:
            return at != last.at and not awaited
        if last is None or last.draw < self.draw:
            return hopeful or at >= IN_ANY_CASE * self.items
        return at >= (LOOK_AGAIN if hopeful else IN_ANY_CASE) * last.at

    def looked(self, rule: StopRule, online: Online, taught: Mask, at: int) -> Proof:
        """With one more look, at the labels after so many votes."""
        from scipy.stats import hypergeom

        if rule.max_error is None:
            raise ParameterError("Set max_error first: how many labels may be wrong.")
        consensus = online.consensus()
        code, _ = online.class_names.encode(consensus.classes)
        label = dict(
            zip(online.store.items.codes.tolist(), np.asarray(code)[consensus.label_codes].tolist(), strict=True)
        )
        label = {item: k for item, k in label.items() if not taught[item]}
        there = [item for item in self.drawn if item in label]
        wrong = sum(label[item] != self.known[item] for item in there)
        N, j = len(label), len(self.looks) + 1
        allowed = int(np.floor(rule.max_error * N + 1e-9))
        p = float(hypergeom.cdf(wrong, N, allowed + 1, len(there)))
        proven = p <= (1.0 - rule.confidence) / (j * (j + 1.0))
        look = Look(at, self.draw, rule.max_error, rule.confidence, N, len(there), wrong, proven)
        return replace(self, looks=(*self.looks, look))

    @property
    def last_proven(self) -> Look | None:
        """The last look, where it proved enough."""
        return self.looks[-1] if self.looks and self.looks[-1].proven and self.looks[-1].draw == self.draw else None

    def sentence(self, at: int) -> Sentence | None:
        """What the last look proved of the labels after so many votes; ``None`` where it did not."""
        look = self.last_proven
        if look is None or look.at != at:
            return None
        share, confidence = (f"{x:.2%}".replace(".00%", "%") for x in (look.max_error, look.confidence))
        return Sentence(
            "at most {share} of the {labels} labels are wrong, with {confidence} confidence, proven by {gold} random "
            "gold labels ({wrong} of them differ)",
            share=share, labels=f"{look.labels:,}", confidence=confidence, gold=f"{look.gold:,}",
            wrong=f"{look.wrong:,}",
        )  # fmt: skip


def gold_to_stop(rule: StopRule, N: int) -> int:
    """The gold labels with which the first look at N labels proves ``max_error`` in four of five draws, where half as
    many labels are wrong as may be."""
    from scipy.stats import hypergeom

    allowed, few, enough = int(np.floor((rule.max_error or 0.0) * N + 1e-9)), 0, N
    while enough - few > 1:
        m = (few + enough) // 2
        wrong = hypergeom.ppf(0.8, N, allowed // 2, m)
        proven = hypergeom.cdf(wrong, N, allowed + 1, m) <= (1.0 - rule.confidence) / 2.0
        few, enough = (few, m) if proven else (m, enough)
    return enough


def worth_asking(state: State, stake: float) -> npt.NDArray[np.bool_]:
    """N: whether a vote of some annotator on the item is worth its price; those who have voted on it are left out."""
    people = np.flatnonzero(state.available & (state.load >= 1.0))
    theta = acquisition.mean(state.dirichlet[people])
    out = np.zeros(len(state.posterior), dtype=bool)
    step = max(1, 1_000_000 // max(len(people), 1))
    for lo in range(0, len(out), step):
        items = np.arange(lo, min(lo + step, len(out)))
        gain = stake * acquisition.pair_values(state.corrected[items], theta, "error-reduction") - state.price[people]
        out[items] = ((gain > 0.0) & allowed(state, items, people, ())).any(axis=1)
    return out


@checked
def estimate_accuracy(
    online: Online,
    level: Fraction = 0.95,
    random_state: RandomState = 0,
    *,
    dependence: Literal["auto", "none"] = "auto",
) -> AccuracyEstimate:
    """The accuracy of the labels of a stream, estimated without truth, with an interval (see the top of this file).

    ``dependence="none"`` takes votes on an item as independent given its class: real crowds are overrated by it.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=5, random_state=0)
    >>> online = cw.Online(cw.OneCoin(), step=None).partial_fit(crowd.votes)
    >>> found = estimate_accuracy(online)
    >>> found.low < online.consensus().score(crowd.truth) < found.high
    True
    """
    store = online.store
    if store.n_votes == 0:
        raise NotFittedError("No votes have come in yet: there are no labels to be accurate.")
    q, prior = online.e_step()
    (N, K), chosen, rng = q.shape, decide(q, prior), np.random.default_rng(random_state)
    indptr, annotator, label, weight = store.votes()
    truth, size = store.truth, np.diff(indptr)
    pairs = int((size * (size - 1) // 2).sum() + size[truth >= 0].sum())
    if K == 1:
        return AccuracyEstimate(1.0, 1.0, 1.0, N, pairs)
    free = truth < 0
    n_free = int(free.sum())
    if pairs < MIN_PAIRS or not n_free:
        confidence = float(q[np.arange(N), chosen][free].mean()) if n_free else 1.0
        mean, low, high = accuracy.prior_accuracy(K, confidence, level, rng)
        return AccuracyEstimate(mean, low, high, n_free, pairs, known=False)
    answers = accuracy.ItemVotes(
        indptr[:-1], np.repeat(np.arange(N), size), annotator.astype(np.int64), label.astype(np.int64), weight, truth,
        len(store.annotators), K,
    )  # fmt: skip
    means, variance = accuracy.accuracy_draws(answers, chosen, q, accuracy.n_draws(len(label)), rng)
    low, high = accuracy.interval(means, variance, n_free, level)
    if dependence == "none":
        return AccuracyEstimate(float(means.mean()), low, high, n_free, pairs)
    own = float(online.corrected(q)[np.arange(N), chosen][free].mean())
    mean, least, most = accuracy_interval(own, N - n_free, level)
    rho = online.shown_dependence().rho
    return AccuracyEstimate(mean, min(low, least), max(high, most), n_free, pairs, rho=rho)
