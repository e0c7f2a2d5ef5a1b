"""Tags of sequences: a hidden Markov chain of true tags, seen through annotators with confusion matrices.

``hmm-crowd``: the true tags of a sequence are a Markov chain, and annotator m, who said h of the token before, turns a
true tag k into l with probability theta[m, h, k, l], independently of everybody else:

    P(votes, y) = first[y_1] prod_t A[y_{t-1}, y_t] prod over votes on token t of theta[m, h, y_t, l]

In BIO, transitions that spell out nothing (``O`` to ``I-x``) have probability zero, in the fit and in the decoding.
``token-dawid-skene``, the default: ``auto`` (or another method) on tokens as if they were unrelated, and then the valid
tagging with the largest product of the tokens' probabilities.

==============  ===================  ===========  ==============================================================
symbol          code                 shape        equation
==============  ===================  ===========  ==============================================================
first, A        ``log_prior``        (1 + K) x K  (expected counts + a) normalised; zero where not allowed
q[t, k]         posterior            T x K        P(y_t = k, given all votes on the sequence), forward-backward
c[m', l, k]     ``counts``           M' x K x K   sum over the votes for l of m' = (m, h) of q[t, k]
theta           ``log_score``        M' x K x K   (c + b) / sum_l (c + b), as in Dawid-Skene
a, b            ``chain_pseudo``,    as A, theta  pseudo-counts of the priors
                ``pseudo``
objective                                         sum over sequences of log P(votes) + sum b log theta + sum a log A
==============  ===================  ===========  ==============================================================

The loop is that of :mod:`crowdwise.core.em`; only the expectation runs along the chains. Where all rows of A are
alike and equal to ``first``, and annotators have no memory, this is Dawid and Skene's model.

References: A. T. Nguyen, B. C. Wallace, J. J. Li, A. Nenkova and M. Lease, Aggregating and predicting sequence labels
from crowd annotations, ACL 2017. E. Simpson and I. Gurevych, A Bayesian approach for sequence tagging with crowds,
EMNLP 2019 (the annotator model "seq"). F. Rodrigues, F. Pereira and B. Ribeiro, Sequence labeling with multiple
annotators, Machine Learning 95 (2014), for the conditional random field. P. A. Traganitis and G. B. Giannakis,
Unsupervised ensemble classification with sequential and networked data, IEEE TKDE 2022.

**Memory.** h is one more value where a sequence begins or the token before was left out. What m said before is known,
so only the cell of the table changes that a vote falls into: annotator m with h before is counted as an annotator of
their own, m' = m (K + 1) + h. Most of these have few votes, so they are shrunk towards the whole crowd with the same h.
Without ``memory`` theta does not depend on h; by default the evidence of both decides.

With ``words`` the chain is a conditional random field: P(y | x) is proportional to
exp( sum_t (W x_t)[y_t] + A[y_{t-1}, y_t] ), x_t the features of token t (:func:`word_features`). Then W x_t is one more
row of evidence for token t, A need not be normalised, and the M-step raises E_q[log P(y | x)] - |W|^2 / 2 - |A|^2 / 2
by L-BFGS; its gradient is what q expects of features and transitions, less what the field expects without votes.

``evidence`` compares how probable the votes are, given a tagging, with and without memory, the tables integrated out
under their priors (two Dirichlet-multinomial marginal likelihoods). Splitting tables without need lowers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.answers.tags_result import Inferred, TagModel, decode, token_decode
from crowdwise.core import em, priors, shrinkage, starts
from crowdwise.core.constraints import Bounds, Check, Count, MethodKey, NonNegative, are_numbers, declared
from crowdwise.core.dependence import USUAL, correct, votes_per_item
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.loop import Callback, check_memory
from crowdwise.core.model import Outcome
from crowdwise.core.numerics import Floats, Ints, clamp, dirichlet_multinomial, normalise, safe_log
from crowdwise.core.priors import History, Prior
from crowdwise.core.starts import Start, majority
from crowdwise.core.unseen import with_unseen
from crowdwise.data.tags import Tags
from crowdwise.errors import InputError, ParameterError
from crowdwise.kernels import chains
from crowdwise.methods.ds_dawid_skene import full


def chain_statistics(part: Part, q: Floats, cuts: Ints, allowed: npt.NDArray[np.bool_]) -> Stats:
    """The statistics that go with tokens whose tags are independent with probabilities q (a start)."""
    at = np.setdiff1d(np.arange(len(q)), cuts[:-1])
    chain = np.vstack([q[cuts[:-1]].sum(axis=0), q[at - 1].T @ q[at]])
    return Stats(em.statistics(part, q).counts, np.where(allowed, chain, 0.0))


def chain_expect(part: Part, params: Params, cuts: Ints) -> tuple[Stats, Floats]:
    """As :func:`crowdwise.core.em.expect`, with a Markov chain for a prior."""
    counts, chain, evidence, q = chains.expect(
        part.indptr, part.cell, part.weight, params.log_score, params.log_prior, part.truth, cuts
    )
    return Stats(counts, chain, evidence), q


@dataclass(frozen=True)
class ChainFamily:
    """The maximisation step and the objective: confusions as in Dawid-Skene, and a chain (learned unless fixed)."""

    pseudo: Floats
    chain_pseudo: Floats
    allowed: npt.NDArray[np.bool_]
    fixed: Floats | None = None

    def maximise(self, stats: Stats) -> Params:
        log_score = safe_log(full(stats.table() + self.pseudo)).reshape(stats.counts.shape)
        if self.fixed is not None:
            return Params(log_score, self.fixed)
        return Params(log_score, log_chain(stats.mass + self.chain_pseudo, self.allowed))

    def objective(self, log_likelihood: float, params: Params) -> float:
        K = params.log_score.shape[1]
        value = log_likelihood + float((self.pseudo * params.log_score.reshape(-1, K, K)).sum())
        if self.fixed is None:
            value += float((self.chain_pseudo * np.where(self.allowed, params.log_prior, 0.0)).sum())
        return value


@dataclass(frozen=True)
class FieldFamily(ChainFamily):
    """As above, with a conditional random field on T x D features of the tokens for a chain.

    Rows of counts and scores from ``len(pseudo) * K`` on are those of the tokens. ``weights`` are changed in place: W,
    then A ((D + 1 + K) x K).
    """

    x: Any = None
    starts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    weights: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def maximise(self, stats: Stats) -> Params:
        from scipy.optimize import minimize

        (T, D), n = self.x.shape, len(self.pseudo) * stats.counts.shape[1]
        q = stats.counts[n : n + T]

        def loss(flat: Floats) -> tuple[float, Floats]:
            both = flat.reshape(self.weights.shape)
            p, chain, log_z = self.without_votes(both)
            value = log_z - float((q * (self.x @ both[:D])).sum() + (stats.mass * both[D:]).sum())
            gap = np.vstack([self.x.T @ (p - q), np.where(self.allowed, chain - stats.mass, 0.0)])
            return value + 0.5 * float((both**2).sum()), (gap + both).ravel()

        optimum = minimize(loss, self.weights.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 10})
        self.weights[:] = optimum.x.reshape(self.weights.shape)
        votes = super().maximise(replace(stats, counts=stats.counts[:n])).log_score
        return Params(*self.scored(votes, self.x, len(stats.counts)))

    def scored(self, votes: Floats, x: Any, rows: int) -> tuple[Floats, Floats]:
        """Scores of votes with those of tokens below, up to so many rows; and A."""
        D = x.shape[1]
        rest = np.zeros((rows - len(votes), votes.shape[1]))
        rest[: x.shape[0]] = x @ self.weights[:D]
        return np.vstack([votes, rest]), np.where(self.allowed, self.weights[D:], -np.inf)

    def without_votes(self, both: Floats) -> tuple[Floats, Floats, float]:
        """What the field alone expects: T x K probabilities of tags, transitions; and its log normaliser."""
        T, D = self.x.shape
        chain = np.where(self.allowed, both[D:], -np.inf)
        none, each = np.empty(0, np.int32), np.arange(T + 1)
        _, pairs, log_z, p = chains.expect(each, each[:-1], np.empty(0), self.x @ both[:D], chain, none, self.starts)
        return p, pairs, log_z

    def objective(self, log_likelihood: float, params: Params) -> float:
        n = self.pseudo.shape[0] * self.pseudo.shape[2]
        votes = float((self.pseudo * params.log_score[:n].reshape(self.pseudo.shape)).sum())
        log_z = self.without_votes(self.weights)[2]
        return log_likelihood - log_z + votes - 0.5 * float((self.weights**2).sum())


def word_features(tags: Tags) -> Any:
    """T x D, sparse: words of a token and its neighbours in small letters, their last three letters, their shapes."""
    from sklearn.feature_extraction import FeatureHasher

    if tags.words is None:
        raise InputError(
            "words=True takes the tokens' words as evidence, and these tags have none: give a column of them."
        )
    word = [str(w) for w in tags.words.tolist()]
    own = [(w.lower(), f"..{w.lower()[-3:]}", "Aa"[w[:1].islower()] + "9" * any(map(str.isdigit, w))) for w in word]
    ends = np.append(tags.opens, True).tolist()
    edge = ("^", "", "")
    near = [(own[t], edge if ends[t] else own[t - 1], edge if ends[t + 1] else own[t + 1]) for t in range(len(word))]
    rows = [[f"{at}{part}{name}" for at, one in enumerate(three) for part, name in enumerate(one)] for three in near]
    return FeatureHasher(2**16, input_type="string", alternate_sign=False).transform(rows)


def with_tokens(part: Part) -> Part:
    """The votes, and one on every token whose cell is the token's own: its row of scores is what its words say."""
    T, K = len(part.indptr) - 1, part.n_classes
    own, end = part.n_cells + np.arange(T), part.indptr[1:]
    weight = np.insert(part.weight, end, 1.0) if len(part.weight) else part.weight
    return replace(
        part, indptr=part.indptr + np.arange(T + 1), cell=np.insert(part.cell.astype(np.int64), end, own),
        weight=weight, n_annotators=part.n_annotators - (-T // K),
    )  # fmt: skip


def log_chain(counts: Floats, allowed: npt.NDArray[np.bool_]) -> Floats:
    """Logarithms of the rows' shares; -inf where not allowed, even where nothing was counted."""
    row = np.where(counts.sum(axis=1, keepdims=True) > 0.0, counts, allowed)
    return np.where(allowed, safe_log(normalise(row, axis=1)), -np.inf)


Transitions = Annotated[Any, Check(
    lambda value: are_numbers(value, Bounds(minimum=0)), "the probabilities of first tags and of transitions"
)]  # fmt: skip


@declared
class HMMCrowd(TagModel):
    """A Markov chain of true tags and a confusion matrix for each annotator, by EM.

    Parameters
    ----------
    memory
        Whether what an annotator says of a token may depend on what they said of the one before; ``"auto"``: fit
        without, and again with it where the votes are more probable so (their marginal likelihood, given the tagging
        found).
    prior
        Pseudo-counts on the confusion matrices, as in :class:`DawidSkene`. The default shrinks every annotator towards
        the crowd (with the same tag before), as far as its members are alike: tags are many, and an annotator of a few
        sequences has seen most of them a few times at best.
    history
        Past performance, which counts throughout the fit: annotator -> K x K counts (truth, label), or a Consensus.
    transition
        ``"learned"``, or the chain: (1 + K) x K probabilities of each first tag, and below, of each tag after each.
    words
        Whether the words of the tokens are evidence as well, through a conditional random field (slower; ``transition``
        is then learned, without ``transition_prior``).
    transition_prior
        Pseudo-counts on each row of the chain, spread evenly over the tags that may stand there.
    decode
        ``"sequence"``: the most probable tagging of a sequence as a whole. ``"tokens"``: the valid tagging with the
        largest product of the tokens' probabilities.
    start, max_iter, tol, accelerate
        As in :class:`DawidSkene`.
    random_state
        Seed of starts that draw.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.bio_tags(150, annotators_per_sequence=2, random_state=0)
    >>> consensus = cw.aggregate(crowd.tags, "hmm-crowd")
    >>> majority = cw.aggregate(crowd.tags.votes, "majority")
    >>> f1 = [float(cw.metrics.span_scores(c, crowd.tags)["f1"]) for c in (consensus, majority)]
    >>> f1[0] > f1[1] + 0.05
    True
    """

    key = "hmm-crowd"

    memory: bool | Literal["auto"] = "auto"
    prior: Prior = "crowd"
    history: History = None
    transition: Literal["learned"] | Transitions = "learned"
    transition_prior: NonNegative = 1.0
    words: bool = False
    decode: Literal["sequence", "tokens"] = "sequence"
    start: Start = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-7
    accelerate: bool = True

    def _infer(self, tags: Tags, gold: Ints | None, callback: Callback | None) -> Inferred:
        q = starts.initial_posterior(self.start, Part.of(tags.votes, gold), tags.votes, gold, self.random_state)
        self.memory_ = self.memory is True
        inferred = self._run(tags, gold, q, callback)
        if self.memory == "auto" and evidence(tags, inferred[1]) > 0.0:
            self.memory_ = True
            inferred = self._run(tags, gold, q, callback)
        return inferred

    def _run(self, tags: Tags, gold: Ints | None, q: Floats, callback: Callback | None) -> Inferred:
        votes, allowed, K = tags.votes, tags.allowed(), tags.votes.n_classes
        check_memory(votes, K + 1 if self.memory_ else 1)
        part = Part.of(votes, gold)
        if self.memory_:
            part = with_memory(part, tags)
            pseudo = pseudo_counts(self.prior, self.history, tags, part, gold)
        else:
            pseudo = priors.pseudo_counts(self.prior, self.history, votes, gold)
        pseudo = np.broadcast_to(pseudo, (part.n_annotators, K, K))  # one for all where it was a number
        share = allowed * (self.transition_prior / allowed.sum(axis=1, keepdims=True))
        family: Any = ChainFamily(pseudo, share, allowed, self._fixed(K, allowed))
        if self.words:
            if family.fixed is not None:
                raise ParameterError("words=True learns the chain from words: leave transition at 'learned'.")
            part, x = with_tokens(part), word_features(tags)
            self.features_ = np.flatnonzero(x.getnnz(axis=0) > 1)  # those of one token say nothing of others
            x, weights = x[:, self.features_], np.zeros((len(self.features_) + K + 1, K))
            self.field_ = family = FieldFamily(pseudo, share, allowed, x=x, starts=tags.starts, weights=weights)
        run = em.run_em(
            part, family, chain_statistics(part, q, tags.starts, allowed), max_iter=self.max_iter, tol=self.tol,
            accelerate=self.accelerate and not self.words, callback=callback,
            expectation=lambda part, params: chain_expect(part, params, tags.starts)[0],
        )  # fmt: skip
        stats, q = chain_expect(part, run.params, tags.starts)
        n = len(pseudo) * K
        self.params_ = replace(run.params, log_score=run.params.log_score[:n])
        self.stats_ = replace(stats, counts=stats.counts[:n])
        theta = confusion(self.stats_.table(), votes.n_annotators) if self.memory_ else self.params_.confusion()
        prior = normalise(q.sum(axis=0), axis=0)
        total = stats.log_likelihood - (family.without_votes(family.weights)[2] if self.words else 0.0)
        outcome = Outcome(q, prior, theta, total, **run.outcome)
        labels = self._decode(tags, part, run.params, q, prior)
        chain = log_chain(stats.mass, allowed) if self.words else run.params.log_prior
        return outcome, labels, np.exp(chain)

    def _decode(self, tags: Tags, part: Part, params: Params, q: Floats, prior: Floats) -> npt.NDArray[np.int32]:
        if self.decode == "tokens":
            return token_decode(q, tags, prior)
        logit = chains.emissions(part.indptr, part.cell, part.weight, params.log_score, part.truth)
        return decode(logit, params.log_prior, tags.starts, prior)

    def _posterior(self, tags: Tags) -> tuple[Floats, npt.NDArray[np.int32]]:
        K, part, score = tags.votes.n_classes, Part.of(tags.votes), self.params_.log_score
        H = K + 1 if self.memory_ else 1
        part = with_memory(part, tags) if self.memory_ else part
        pooled = self.stats_.table().reshape(-1, H, K, K).sum(axis=0) + 1.0 / K  # unseen annotators are like the crowd
        unseen = np.log(pooled / pooled.sum(axis=1, keepdims=True))
        score = with_unseen(score.reshape(-1, H, K, K), tags.votes.n_annotators, unseen).reshape(-1, K)
        params = Params(score, self.params_.log_prior)
        if self.words:
            part = with_tokens(replace(part, n_annotators=len(score) // K))
            params = Params(*self.field_.scored(score, word_features(tags)[:, self.features_], part.n_cells))
        q = chain_expect(part, params, tags.starts)[1]
        return q, self._decode(tags, part, params, q, self._fitted().prior)

    def _fixed(self, K: int, allowed: npt.NDArray[np.bool_]) -> Floats | None:
        if isinstance(self.transition, str) and self.transition == "learned":
            return None
        p = np.asarray(self.transition, dtype=np.float64)
        if p.shape != (K + 1, K) or not (p.sum(axis=1) > 0).all():
            raise ParameterError(
                f"transition: expected 'learned', or {K + 1} x {K} probabilities (of first tags, then of each after "
                f"each); found {self.transition!r}."
            )
        if (p[~allowed] > 0).any():
            raise ParameterError("transition: gives a probability to what BIO does not allow, such as I-x after O.")
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(p / p.sum(axis=1, keepdims=True)))


@declared
class TokenDawidSkene(TagModel):
    """A method for votes on tokens, as if they were unrelated, then the best valid tagging.

    Parameters
    ----------
    base, base_params
        The method, a key of ``crowdwise methods``, and its parameters as a dict.
    decode
        ``"valid"``: the valid tagging with the largest product of the tokens' probabilities. ``"tokens"``: each token's
        most probable tag, valid or not.
    random_state
        Seed of the method.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.bio_tags(100, random_state=0)
    >>> consensus = cw.aggregate(crowd.tags, "token-dawid-skene")
    >>> len(consensus.spans) == len(consensus.find_spans())
    True
    """

    key = "token-dawid-skene"

    base: MethodKey = registry.DEFAULT
    base_params: Annotated[Any, Check(lambda v: isinstance(v, dict), "a dict of parameters of the base")] | None = None
    decode: Literal["valid", "tokens"] = "valid"

    def _inner(self) -> Any:
        return registry.create(self.base, **{"random_state": self.random_state} | (self.base_params or {}))

    @property
    def single_annotator(self) -> bool:
        return bool(self._inner().single_annotator)

    def _infer(self, tags: Tags, gold: Ints | None, callback: Callback | None) -> Inferred:
        self.inner_ = self._inner()
        consensus = self.inner_.fit(tags.votes, gold, callback=callback).consensus_
        if consensus.dependence.source == "gold":
            # Gold tokens of a sequence stand for each other: cross-validation over them promises too much.
            q = clamp(correct(consensus.independent_posterior, votes_per_item(tags.votes), USUAL), gold)
            notes = [USUAL.reason if note == consensus.dependence.reason else note for note in consensus.notes]
            consensus = self.inner_.consensus_ = replace(consensus, posterior=q, dependence=USUAL, notes=notes)
        kept = ("posterior", "prior", "confusion", "log_likelihood", "trace", "iterations", "converged", "notes")
        outcome = Outcome(**{name: getattr(consensus, name) for name in kept})
        return outcome, self._decode(consensus.posterior, tags, consensus.prior), None

    def _decode(self, q: Floats, tags: Tags, prior: Floats) -> npt.NDArray[np.int32]:
        if self.decode == "valid":
            return token_decode(q, tags, prior)
        return decode(safe_log(q), np.zeros((q.shape[1] + 1, q.shape[1])), tags.starts, prior)

    def _posterior(self, tags: Tags) -> tuple[Floats, npt.NDArray[np.int32]]:
        q = self.inner_.predict_proba(tags.votes)
        return q, self._decode(q, tags, self._fitted().prior)

    def _check_together(self) -> None:
        super()._check_together()
        self._inner().check_parameters()


def said_before(tags: Tags) -> Ints:
    """For every vote, the tag (code) that its annotator gave to the token before; K where there is none."""
    votes = tags.votes
    order = np.lexsort((votes.item, votes.annotator))
    token, who, label = votes.item[order], votes.annotator[order], votes.label[order]
    follows = np.append(False, (np.diff(token) == 1) & (np.diff(who) == 0)) & ~tags.opens[token]
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.where(follows, np.append(0, label[:-1]), votes.n_classes)
    return out


def with_memory(part: Part, tags: Tags) -> Part:
    """The votes with annotators split by what they said before."""
    K = part.n_classes
    cell = (tags.votes.annotator.astype(np.int64) * (K + 1) + said_before(tags)) * K + tags.votes.label
    if part.n_cells * (K + 1) <= np.iinfo(np.int32).max:
        cell = cell.astype(np.int32)
    return replace(part, cell=cell, n_annotators=part.n_annotators * (K + 1))


def pseudo_counts(prior: Any, history: Any, tags: Tags, part: Part, gold: Ints | None) -> Floats:
    """b[m', l, k], as :func:`crowdwise.core.priors.pseudo_counts` but pooled over annotators with the same tag before.
    Past performance is spread over what may have been said before as it is in the crowd."""
    votes, K = tags.votes, part.n_classes
    M, H = votes.n_annotators, K + 1
    counts = em.statistics(part, majority(votes, gold)).table().reshape(M, H, K, K)
    past = None
    if history is not None:
        share = normalise(counts.sum(axis=0) + 1e-9, axis=0)
        past = share * priors.history_counts(history, votes)[:, None]
        counts = counts + past
    if isinstance(prior, str) and prior in priors.NAMED:
        table = np.stack([shrinkage.learned_prior(counts[:, h], prior) for h in range(H)], axis=1)
    else:
        table = np.broadcast_to(priors.pseudo_counts(prior, None, votes, gold)[:, None], (M, H, K, K))
    table = table if past is None else table + past
    return table.reshape(M * H, K, K)


def evidence(tags: Tags, labels: Ints) -> float:
    """log P(votes with memory) - log P(votes without), given the tags of all tokens (codes)."""
    plain = Part.of(tags.votes)
    K = plain.n_classes
    q = np.eye(K)[labels]
    alone = em.statistics(plain, q).table()
    split = em.statistics(with_memory(plain, tags), q).table().reshape(-1, K + 1, K, K)

    def log_evidence(counts: Floats) -> float:
        prior = shrinkage.learned_prior(counts, "crowd")
        return dirichlet_multinomial(counts.transpose(0, 2, 1), prior.transpose(0, 2, 1))

    return sum(log_evidence(split[:, h]) for h in range(K + 1)) - log_evidence(alone)


def confusion(counts: Floats, M: int) -> Floats:
    """theta[m, k, l] whatever was said before, from c[m', l, k]; each row gets one vote that falls like the crowd's."""
    K = counts.shape[1]
    table = counts.reshape(M, -1, K, K).sum(axis=1).transpose(0, 2, 1)
    crowd = normalise(table.sum(axis=0) + 1.0 / K, axis=1)
    return normalise(table + crowd, axis=2)
