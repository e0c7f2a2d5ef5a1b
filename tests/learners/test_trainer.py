"""The training loop: steps and schedules, what is selected and stopped by, checkpoints, and what it leaves alone."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn

from crowdwise.data.votes import Votes
from crowdwise.errors import DivergedError, InputError, ParameterError, ReadError
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import as_inputs
from crowdwise.learners.joint_confusions import CCEM, Confusions, identity
from crowdwise.learners.trainer import Stages, Trainer, TrainingData
from crowdwise.learners.training_settings import SCHEDULES, Epoch
from crowdwise.learners.training_settings import TrainingSettings as Settings
from crowdwise.learners.vote_edges import Edges, split
from crowdwise.registry import find
from learners.crowd import small


class Watching(Confusions):
    """Confusion matrices, and a note of everything that happens."""

    def __init__(self, n_annotators, n_classes):
        super().__init__(n_annotators, n_classes, identity(n_classes))
        self.batches, self.began, self.rates, self.steps = [], [], [], 0

    def begin_epoch(self, epoch, predict):
        self.began.append((epoch, tuple(predict().shape)))

    def loss(self, batch):
        self.batches.append(batch.index.tolist())
        return super().loss(batch)

    def after_step(self):
        self.steps += 1


class Silent(Watching):
    """Has nothing to say about votes: what is trained is known truth alone."""

    def loss(self, batch):
        super().loss(batch)
        return batch.logits.sum() * 0.0


def network(seed=0, n_features=6, n_classes=3):
    with seeded(torch.device("cpu")):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, n_classes))


def trainer(settings=None, head=None, crowd=None, net=None, seed=0, **more):
    X, votes, _ = crowd or small(n=60)
    head = head or Watching(votes.n_annotators, votes.n_classes)
    net = net or network(n_classes=votes.n_classes)
    data = TrainingData(as_inputs(X), votes, **more)
    return Trainer(net, head, data, settings or Settings(epochs=2), seed=seed, device="cpu")


def state(one):
    return {name: value.clone() for name, value in one.state().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class TestSchedules:
    def test_shapes(self):
        grid = np.linspace(0.0, 1.0, 101)
        shape = {name: np.array([factor(t) for t in grid]) for name, factor in SCHEDULES.items()}
        assert (shape["constant"] == 1.0).all()
        assert (
            shape["cosine"][0] == 1.0 and abs(shape["cosine"][-1]) < 1e-12 and shape["cosine"][50] == pytest.approx(0.5)
        )
        assert (np.diff(shape["cosine"]) < 0).all()
        np.testing.assert_allclose([SCHEDULES["step"](t) for t in (0.0, 0.24, 0.25, 0.5, 0.75, 0.99)],
                                   [1.0, 1.0, 0.1, 0.01, 0.001, 0.001])  # fmt: skip
        top = shape["one-cycle"].argmax()
        assert grid[top] == pytest.approx(0.3) and shape["one-cycle"][top] == pytest.approx(1.0)
        assert shape["one-cycle"][0] == pytest.approx(0.04) and abs(shape["one-cycle"][-1]) < 1e-12
        assert (np.diff(shape["one-cycle"][: top + 1]) > 0).all() and (np.diff(shape["one-cycle"][top:]) < 0).all()
        assert all((s >= 0).all() and (s <= 1.0 + 1e-12).all() for s in shape.values())

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_every_step_takes_its_rate(self, schedule):
        class Rated(Watching):
            def after_step(self):
                self.rates.append([group["lr"] for group in one.optimiser.param_groups])

        settings = Settings(epochs=4, batch_size=16, lr=0.1, crowd_lr=0.5, schedule=schedule)
        one = trainer(settings, Rated(8, 3))
        history = one.run()
        per_epoch = len(one._cuts())
        for step, (net, crowd) in enumerate(one.head.rates):
            factor = SCHEDULES[schedule](step / per_epoch / 4)
            assert (net, crowd) == (pytest.approx(0.1 * factor), pytest.approx(0.5 * factor))
        assert [epoch.lr for epoch in history] == [
            pytest.approx(0.1 * SCHEDULES[schedule]((n + 1) / 4)) for n in range(4)
        ]  # fmt: skip


class TestSteps:
    @pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
    def test_optimisers_lower_the_loss(self, optimiser):
        one = trainer(Settings(epochs=12, optimiser=optimiser, lr=0.01), crowd=small(n=200))
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        assert isinstance(one.optimiser, kinds[optimiser])
        history = one.run()
        assert history[-1].loss < history[0].loss - 0.1

    def test_two_groups_and_who_decays(self):
        class Slow(Watching):
            def __init__(self, *size):
                super().__init__(*size)
                self.other = nn.Parameter(torch.zeros(2))

            def slow_parameters(self):
                return [self.other]

        one = trainer(Settings(lr=0.1, crowd_lr=0.5, weight_decay=0.3), Slow(8, 3))
        net, slow, crowd = one.optimiser.param_groups
        assert (net["lr"], net["weight_decay"], crowd["lr"], crowd["weight_decay"]) == (0.1, 0.3, 0.5, 0.0)
        assert (slow["lr"], slow["weight_decay"]) == (0.1, 0.3)
        assert {id(p) for p in net["params"]} == {id(p) for p in one.network.parameters()}
        assert {id(p) for p in slow["params"]} == {id(one.head.other)}
        assert {id(p) for p in crowd["params"]} == {id(one.head.rho)}

    def test_an_epoch_is_every_item_with_votes_once(self):
        X, votes, _ = small(n=50)
        votes = votes.select(votes.item >= 5)
        one = trainer(Settings(epochs=2, batch_size=16), crowd=(X, votes, None))
        one.run()
        cuts = len(one._cuts())
        for epoch in range(2):
            seen = chain(*one.head.batches[epoch * cuts : (epoch + 1) * cuts])
            assert sorted(seen) == list(range(5, 50))
        assert one.head.batches[:cuts] != one.head.batches[cuts:]  # in another order
        assert one.head.began == [(0, (50, 3)), (1, (50, 3))]
        assert one.head.steps == 2 * cuts

    @pytest.mark.parametrize(
        ("n", "size", "lengths"),
        [
            (33, 16, [16, 17]),
            (34, 16, [16, 16, 2]),
            (17, 16, [17]),
            (1, 16, [1]),
            (3, 1, [1, 1, 1]),
            (32, 16, [16, 16]),
        ],
    )
    def test_a_last_batch_of_one_joins_the_one_before(self, n, size, lengths):
        one = trainer(Settings(epochs=1, batch_size=size), crowd=small(n=n))
        one.run()
        assert [len(batch) for batch in one.head.batches] == lengths

    def test_batches_of_one_leave_batch_norm_at_rest(self):
        X, votes, _ = small(n=5)
        net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        trainer(Settings(epochs=1, batch_size=1), crowd=(X, votes, None), net=net).run()
        assert torch.equal(net[1].running_mean, torch.zeros(4))
        assert all(torch.isfinite(p).all() for p in net.parameters())

    def test_gradients_are_cut_to_the_norm(self):
        norms = []

        class Measured(Watching):
            def after_step(self):
                parameters = [*one.network.parameters(), *self.parameters()]
                norms.append(math.sqrt(sum(float((p.grad**2).sum()) for p in parameters if p.grad is not None)))

        for clip in (None, 0.05):
            one = trainer(Settings(epochs=1, batch_size=16, clip=clip), Measured(8, 3))
            one.run()
        free, cut = norms[: len(norms) // 2], norms[len(norms) // 2 :]
        assert min(free) > 0.05
        np.testing.assert_allclose(cut, 0.05, rtol=1e-3)

    def test_a_loss_that_is_not_finite_ends_training_in_words(self):
        class Mad(Watching):
            def loss(self, batch):
                return super().loss(batch) * (float("nan") if len(self.batches) > 5 else 1.0)

        with pytest.raises(DivergedError, match=r"Mad became nan in epoch 2: lower lr=0\.02 or crowd_lr=0\.01"):
            trainer(Settings(epochs=3, batch_size=16, lr=0.02), Mad(8, 3)).run()

    def test_a_loss_without_parameters_changes_nothing(self):
        class Empty(Head):
            def loss(self, batch):
                return torch.zeros(())

        one = trainer(Settings(epochs=1), Empty(8, 3))
        before = state(one)
        one.run()
        assert same({k: v for k, v in before.items() if k != "head.counted"},
                    {k: v for k, v in state(one).items() if k != "head.counted"})  # fmt: skip

    def test_no_item_with_votes(self):
        X, votes, _ = small(n=10)
        with pytest.raises(InputError, match="No item has votes"):
            trainer(crowd=(X, votes.select(np.zeros(votes.n_votes, dtype=bool)), None))


class TestHistoryAndCallbacks:
    def test_what_an_epoch_tells(self):
        told = []
        history = trainer(Settings(epochs=3)).run(told.append)
        assert told == history and all(isinstance(epoch, Epoch) for epoch in told)
        assert [(e.epoch, e.epochs) for e in told] == [(1, 3), (2, 3), (3, 3)]
        assert all(e.held_out is None and e.accuracy is None and e.seconds > 0 for e in told)

    def test_a_callback_ends_it_by_true_alone(self):
        assert len(trainer(Settings(epochs=5)).run(lambda epoch: epoch.epoch == 2)) == 2
        assert len(trainer(Settings(epochs=3)).run(lambda epoch: 1)) == 3

    def test_stages_are_told_as_one(self):
        told = []
        stages = Stages(5, told.append)
        first = trainer(Settings(epochs=3))
        stages.run(first)
        stages.run(first.again(2))
        assert [(e.epoch, e.epochs) for e in stages.history] == [(n, 5) for n in range(1, 6)]
        assert told == stages.history and not stages.ended


class TestSelection:
    def halves(self, seed=0):
        X, votes, truth = small(n=120, seed=seed)
        train, held = split(votes, 0.3, np.random.default_rng(seed))
        return X, train, held, truth

    def test_held_out_votes_are_measured_as_the_head_says(self):
        X, train, held, _ = self.halves()
        one = trainer(Settings(epochs=1), crowd=(X, train, None), held_out=held)
        score = one.run()[-1].held_out
        one.network.eval()
        with torch.no_grad():
            f = torch.softmax(one.network(torch.from_numpy(X)), dim=1).double().numpy()
            theta = one.head.confusion().double().numpy()
        plain = np.mean(
            [np.log(f[n] @ theta[m, :, k]) for n, m, k in zip(held.item, held.annotator, held.label, strict=True)]
        )
        assert score == pytest.approx(plain, abs=1e-5)

    def test_the_best_epoch_by_held_out_votes_is_kept(self):
        """What is kept is bit for bit what training had at that epoch, which is not the last."""
        X, train, held, _ = self.halves()
        settings = Settings(epochs=40, lr=0.03, select="votes")
        kept = trainer(settings, crowd=(X, train, None), held_out=held)
        history = kept.run()
        best = int(np.argmax([epoch.held_out for epoch in history])) + 1
        assert best < 40
        upto = trainer(Settings(epochs=40, lr=0.03), crowd=(X, train, None), held_out=held)
        upto.run(lambda epoch: epoch.epoch == best)
        assert same(state(kept), state(upto))

    def test_the_last_epoch_is_kept_where_nothing_is_said(self):
        X, train, held, _ = self.halves()
        with_held, without = (
            trainer(Settings(epochs=5, lr=0.03), crowd=(X, train, None), held_out=h) for h in (held, None)
        )  # fmt: skip
        with_held.run()
        without.run()
        assert same(state(with_held), state(without))  # looking at held-out votes changes nothing

    def test_patience(self):
        X, train, held, _ = self.halves()
        one = trainer(Settings(epochs=200, lr=0.03, patience=4), crowd=(X, train, None), held_out=held)
        scores = [epoch.held_out for epoch in one.run()]
        assert len(scores) < 200
        assert max(scores[-4:]) <= max(scores[:-4])
        for n in range(5, len(scores)):  # and no earlier
            assert max(scores[n - 4 : n]) > max(scores[: n - 4])

    @pytest.mark.parametrize(("patience", "every"), [(1, 3), (2, 3), (4, 3)])
    def test_epochs_that_were_not_measured_do_not_end_the_patience(self, patience, every):
        X, train, held, _ = self.halves()
        settings = Settings(epochs=120, lr=0.03, patience=patience, measure_every=every)
        history = trainer(settings, crowd=(X, train, None), held_out=held).run()
        scores = {epoch.epoch: epoch.held_out for epoch in history if epoch.held_out is not None}
        assert list(scores) == list(range(every, len(history) + 1, every)) and len(history) < 120
        best = max(scores, key=lambda epoch: scores[epoch])
        assert len(history) - best == every * -(-patience // every)  # the first measurement that comes so much later

    def test_truth_that_selects_is_never_trained_on(self):
        X, votes, truth = small(n=80)
        gold = np.full(80, -1, dtype=np.int32)
        gold[:20] = truth[:20]
        settings = Settings(epochs=30, lr=0.03, batch_size=16, select="gold")
        one = trainer(settings, crowd=(X, votes, None), gold=gold)
        history = one.run()
        assert set(chain(*one.head.batches)) == set(range(20, 80))
        scores = [epoch.accuracy for epoch in history]
        best = int(np.argmax(scores)) + 1
        other = np.where(gold >= 0, (gold + 1) % 3, -1).astype(np.int32)  # other truth, the same steps
        upto = trainer(settings, crowd=(X, votes, None), gold=other)
        at_best = []
        upto.run(lambda epoch: at_best.append(state(upto)) if epoch.epoch == best else None)
        assert same(state(one), at_best[0])
        assert one.head.gold is None

    def test_truth_that_selects_scores_the_network(self):
        X, votes, truth = small(n=80)
        one = trainer(
            Settings(epochs=1, select="gold"), crowd=(X, votes, None), gold=np.where(np.arange(80) < 30, truth, -1)
        )
        accuracy = one.run()[0].accuracy
        found = one.log_probs(one.inputs).argmax(dim=1).numpy()
        assert accuracy == pytest.approx((found[:30] == truth[:30]).mean())


class TestKnownTruth:
    def test_is_trained_on(self):
        """A head that learns nothing from votes: what the network knows then, it has from the truth."""
        X, votes, truth = small(n=150)
        gold = np.where(np.arange(150) < 75, truth, -1)
        one = trainer(Settings(epochs=30, lr=0.01), Silent(8, 3), crowd=(X, votes, None), gold=gold)
        one.run()
        found = one.log_probs(one.inputs).argmax(dim=1).numpy()
        assert (found[75:] == truth[75:]).mean() > 0.8

    def test_counts_as_one_vote_that_is_right(self):
        X, votes, truth = small(n=20)
        gold = np.where(np.arange(20) < 6, truth, -1)
        one = trainer(Settings(), crowd=(X, votes, None), gold=gold)
        batch = next(iter(one.batches(one.edges, one.inputs)))
        plain = -sum(float(batch.log_f[n, truth[n]]) for n in range(6)) / 20
        assert float(one._gold_loss(batch)) == pytest.approx(plain, rel=1e-6)

    def test_an_item_with_known_truth_needs_no_votes(self):
        X, votes, truth = small(n=40)
        votes = votes.select(votes.item >= 10)
        one = trainer(Settings(epochs=1), crowd=(X, votes, None), gold=np.where(np.arange(40) < 5, truth, -1))
        one.run()
        assert sorted(chain(*one.head.batches)) == [*range(5), *range(10, 40)]


class Killed(Exception):
    """The machine went down."""


def kill_after(epochs):
    def callback(epoch):
        if epoch.epoch == epochs:
            raise Killed

    return callback


class TestCheckpoints:
    @pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
    @pytest.mark.parametrize("select", ["last", "votes"])
    def test_going_on_is_as_if_nothing_had_happened(self, tmp_path, optimiser, select):
        X, votes, _ = small(n=90)
        train, held = split(votes, 0.2, np.random.default_rng(0))
        settings = Settings(epochs=8, batch_size=32, optimiser=optimiser, lr=0.02, schedule="cosine", select=select)
        make = lambda: trainer(settings, crowd=(X, train, None), held_out=held)  # noqa: E731
        straight = make()
        whole = straight.run()
        file = tmp_path / "runs" / "one.safetensors"
        for epochs in (3, 5):  # killed twice
            with pytest.raises(Killed):
                make().run(kill_after(epochs), file)
        resumed = make()
        history = resumed.run(checkpoint=file)
        assert same(state(straight), state(resumed))
        for one, two in zip(whole, history, strict=True):
            assert (one.epoch, one.loss, one.held_out, one.lr) == (two.epoch, two.loss, two.held_out, two.lr)
        assert [path.name for path in file.parent.iterdir()] == [file.name]

    @pytest.mark.parametrize(
        "key", ["ccem", "geocrowdnet-f", "max-mig", "conal", "bayes-dgc", "aggnet", "mbem", "coinnet"]
    )
    def test_learners_go_on_too(self, tmp_path, key):
        X, votes, _ = small(n=90)
        settings = {"epochs": 6, "random_state": 0}
        straight = find(key, inputs=True).create(**settings).fit(X, votes)
        file = tmp_path / "one.safetensors"
        with pytest.raises(Killed):
            find(key, inputs=True).create(**settings, checkpoint=file).fit(X, votes, callback=kill_after(4))
        resumed = find(key, inputs=True).create(**settings, checkpoint=file).fit(X, votes)
        assert np.array_equal(straight.predict_proba(X), resumed.predict_proba(X))
        assert np.array_equal(straight.consensus_.posterior, resumed.consensus_.posterior)
        assert np.array_equal(straight.confusion_, resumed.confusion_)

    def test_a_finished_run_is_only_read(self, tmp_path):
        file = tmp_path / "one.safetensors"
        first = trainer(Settings(epochs=3))
        first.run(checkpoint=file)
        again = trainer(Settings(epochs=3))
        assert len(again.run(lambda epoch: pytest.fail("an epoch was trained"), file)) == 3
        assert same(state(first), state(again))

    def test_one_of_another_run_is_refused(self, tmp_path):
        file = tmp_path / "one.safetensors"
        trainer(Settings(epochs=2)).run(checkpoint=file)
        X, votes, _ = small(n=60)
        others = [
            trainer(Settings(epochs=2, lr=0.5)),
            trainer(Settings(epochs=2), seed=1),
            trainer(Settings(epochs=2), crowd=(X, votes.select(votes.item != 3), None)),
            trainer(Settings(epochs=2), net=nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))),
            trainer(Settings(epochs=2), crowd=(X + 1.0, votes, None)),
            trainer(Settings(epochs=2), gold=np.zeros(60, dtype=np.int32)),
            trainer(Settings(epochs=2), held_out=votes),
            trainer(Settings(epochs=2), Silent(8, 3)),
        ]
        for other in others:
            with pytest.raises(InputError, match="other inputs, votes or settings"):
                other.run(checkpoint=file)

    def test_one_of_another_method_is_refused(self, tmp_path):
        """Heads of the same size, and one of the same kind with another setting."""
        X, votes, _ = small(n=60)
        settings = {"epochs": 2, "random_state": 0, "checkpoint": tmp_path / "one.safetensors"}
        find("geocrowdnet-f", inputs=True).create(**settings).fit(X, votes)
        for key, more in (("ccem", {}), ("geocrowdnet-w", {}), ("geocrowdnet-f", {"weight": 0.5})):
            with pytest.raises(InputError, match="other inputs, votes or settings"):
                find(key, inputs=True).create(**settings, **more).fit(X, votes)

    def test_a_broken_one_is_refused(self, tmp_path):
        file = tmp_path / "one.safetensors"
        trainer(Settings(epochs=2)).run(checkpoint=file)
        whole = file.read_bytes()
        for content in (whole[: len(whole) // 2], b"nonsense", b""):
            file.write_bytes(content)
            with pytest.raises(ReadError, match=r"one\.safetensors could not be read"):
                trainer(Settings(epochs=2)).run(checkpoint=file)
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # a single bit of a weight
        with pytest.raises(ReadError, match=r"one\.safetensors is damaged"):
            trainer(Settings(epochs=2)).run(checkpoint=file)


class TestRepeating:
    def test_a_seed_repeats_bit_for_bit(self):
        runs = [trainer(Settings(epochs=3), seed=seed) for seed in (4, 4, 5)]
        for one in runs:
            one.run()
        assert same(state(runs[0]), state(runs[1])) and not same(state(runs[0]), state(runs[2]))

    def test_torchs_own_random_state_is_left_alone(self):
        X, votes, _ = small(n=60)
        before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
        learner = CCEM(epochs=2, random_state=3).fit(X, votes)
        learner.predict_proba(X)
        assert torch.equal(before, torch.random.get_rng_state())
        assert np.array_equal(numpy_before, np.random.get_state()[1])

    def test_nor_does_it_matter(self):
        X, votes, _ = small(n=60)
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(CCEM(epochs=2, random_state=3).fit(X, votes).predict_proba(X))
        assert np.array_equal(*found)

    def test_it_is_left_alone_also_where_training_fails(self):
        before = torch.random.get_rng_state()
        with pytest.raises(Killed):
            trainer(Settings(epochs=2)).run(kill_after(1))
        assert torch.equal(before, torch.random.get_rng_state())


class TestDevices:
    def test_precision_on_the_cpu_is_single(self):
        """bfloat16 is for CUDA; asking for it elsewhere changes nothing."""
        runs = [trainer(Settings(epochs=2, precision=precision)) for precision in ("auto", "float32", "bfloat16")]
        for one in runs:
            one.run()
            assert not one.autocast
            assert all(value.dtype == torch.float32 for value in state(one).values() if value.is_floating_point())
        assert same(state(runs[0]), state(runs[1])) and same(state(runs[0]), state(runs[2]))

    def test_devices_are_found_or_refused(self):
        assert find_device("cpu").type == "cpu"
        assert find_device("auto").type in ("cuda", "mps", "cpu")
        for name in ("nonsense", "cuda:99"):
            with pytest.raises(ParameterError, match=f"device='{name}': cannot be used here"):
                find_device(name)

    @pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU")
    @pytest.mark.parametrize(("name", "words"), [("gpu", "no GPU"), ("cuda", "no CUDA GPU"), ("mps", "no Apple GPU")])
    def test_a_device_that_is_not_there_is_one_line(self, name, words):
        with pytest.raises(ParameterError) as caught:
            find_device(name)
        assert "\n" not in str(caught.value) and words in str(caught.value) and "device='cpu'" in str(caught.value)


def test_a_network_at_rest_answers_the_same_whatever_the_batches():
    X, votes, _ = small(n=700)
    one = trainer(crowd=(X, votes, None))
    together = one.log_probs(one.inputs)
    single = torch.cat([one.log_probs(one.inputs, np.array([n])) for n in range(20)])
    torch.testing.assert_close(together[:20], single)
    edges = Edges.of(votes)
    counts = [len(batch.row) for batch in one.batches(edges, one.inputs)]
    assert len(counts) == 2 and sum(counts) == votes.n_votes


def test_votes_on_one_item_are_enough():
    votes = Votes.from_codes([0, 0], [0, 1], [0, 1], items=range(1), annotators=range(2), classes=range(2))
    one = trainer(Settings(epochs=2), crowd=(np.zeros((1, 6), dtype=np.float32), votes, None))
    assert all(np.isfinite(epoch.loss) for epoch in one.run())
