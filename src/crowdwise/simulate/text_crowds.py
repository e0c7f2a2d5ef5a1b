"""Simulated crowds who write down what was said, with known texts and known rates of errors."""

from __future__ import annotations

import numpy as np

from crowdwise.data.texts import Texts
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, SimulatedAnswers, VotesPerItem, assign

SYLLABLES = np.array(["ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve", "wi", "zo", "ka", "le"])


def texts(
    n_items: int = 200, *, n_annotators: int = 20, texts_per_item: VotesPerItem = 5, length: int = 12,
    n_words: int = 500, error: tuple[float, float] = (2.0, 18.0), common: float = 0.5, random_state: RandomState = 0,
) -> SimulatedAnswers[Texts]:  # fmt: skip
    """Sentences that annotators write down with errors.

    An annotator errs on a word at a rate from a Beta distribution (``error``): half of the errors put another word, the
    others leave it out or insert one. Of wrong words a share ``common`` is the same for everybody, as words that sound
    alike are. Sentences have ``length`` words on average. Parameters hold ``error``, in the order of annotators.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators, length=length, n_words=n_words)
    crowds.check_shares(common=common)
    rng = crowds.as_generator(random_state)
    words = ["".join(rng.choice(SYLLABLES, size=rng.integers(1, 5))) for _ in range(n_words)]
    chance = 1.0 / np.arange(1, n_words + 1)
    chance /= chance.sum()
    alike = rng.permutation(n_words)
    truth = [rng.choice(n_words, size=max(1, rng.poisson(length)), p=chance) for _ in range(n_items)]
    rate = rng.beta(*error, size=n_annotators)
    item, who = assign(n_items, n_annotators, texts_per_item, random_state=rng)
    rows = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        heard = []
        for word in truth[n].tolist():
            kind, other = rng.random(), int(alike[word] if rng.random() < common else rng.integers(n_words))
            wrong = rate[m]
            heard += (
                [other]
                if kind < wrong / 2
                else []
                if kind < wrong * 3 / 4
                else [word, other]
                if kind < wrong
                else [word]
            )
        rows.append((n, f"a{m}", " ".join(words[w] for w in heard) or words[0]))
    answers = Texts.from_records(rows)
    true = {n: " ".join(words[w] for w in truth[n].tolist()) for n in range(n_items)}
    return SimulatedAnswers(
        "texts", answers.with_truth(true), {"error": rate[[int(name[1:]) for name in answers.annotators]]}
    )
