"""Images in training: augmentation, and the options of the one trainer that serve every learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from crowdwise import simulate
from crowdwise.learners.alternating_em import DeviceEM
from crowdwise.learners.inputs import SHIFT, Images, augmented, cut_out, mirrored
from crowdwise.learners.trainer import WeightAverage
from crowdwise.registry import find

N = 60


@pytest.fixture(scope="module")
def crowd():
    """Votes on images whose upper or lower half is bright, 8 x 8, three channels."""
    votes = simulate.one_coin(N, n_annotators=5, votes_per_item=3, a=9.0, b=1.0, random_state=0).votes
    rng = np.random.default_rng(0)
    X = rng.integers(100, size=(N, 8, 8, 3), dtype=np.uint8)
    for n, k in enumerate(votes.truth):
        X[n, 4 * k : 4 * k + 4] += 120
    return X, votes


def fitted(crowd, key="ccem", **settings):
    X, votes = crowd
    given = {"network": "tanno", "epochs": 4, "batch_size": 20, "random_state": 3, "device": "cpu"} | settings
    return find(key, inputs=True).create(**given).fit(X, votes)


class TestImages:
    def test_bytes_stay_bytes_and_read_as_before(self, crowd):
        X, _ = crowd
        images = Images(X, True, torch.device("cpu"))
        assert images.pixels.dtype == torch.uint8
        x = images.read(torch.tensor([3, 1]))
        np.testing.assert_array_equal(x.numpy(), (X[[3, 1]].astype(np.float32) / np.float32(255)).transpose(0, 3, 1, 2))
        first = Images(X.transpose(0, 3, 1, 2), False, torch.device("cpu"))
        assert torch.equal(first.pixels, images.pixels)
        grey = Images(X[..., 0], False, torch.device("cpu"))
        assert torch.equal(grey.read(torch.tensor([2])), images.read(torch.tensor([2]))[:, :1])

    def test_mirrored_places(self):
        assert mirrored(torch.arange(-3, 8), 5).tolist() == [3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1]

    def test_a_flip_is_the_image_or_its_mirror_image(self, crowd):
        X, _ = crowd
        images, index = Images(X, True, torch.device("cpu")), torch.arange(N)
        torch.manual_seed(0)
        x, plain = images.read(index, "flip"), images.read(index)
        same = (x == plain).flatten(1).all(dim=1)
        turned = (x == plain.flip(3)).flatten(1).all(dim=1)
        assert bool((same | turned).all())
        assert 0.3 < float(turned.double().mean()) < 0.7

    def test_a_crop_moves_by_up_to_four_pixels(self):
        places = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(200, -1, -1, 1)
        torch.manual_seed(0)
        x = (Images(places, True, torch.device("cpu")).read(torch.arange(200), "crop") * 255).round().long()[:, 0]
        middle = x[:, 8, 8]
        down, right = middle // 16 - 8, middle % 16
        assert set(down.tolist()) == set(range(-SHIFT, SHIFT + 1))
        assert right.min() >= 3 and right.max() <= 12  # columns 7 and 8, mirrored or not, each moved
        one = x[0]
        assert bool(((one[:, 8] // 16).diff().abs() <= 1).all())  # rows stay rows

    def test_a_batch_that_was_read_is_augmented_alike(self, crowd):
        X, _ = crowd
        images, index = Images(X, True, torch.device("cpu")), torch.arange(N)
        for augment in ("flip", "crop", "cutout"):
            torch.manual_seed(5)
            whole = images.read(index, augment)
            torch.manual_seed(5)
            torch.testing.assert_close(augmented(images.read(index), augment), whole)

    def test_cutout_sets_a_square_to_the_mean(self):
        torch.manual_seed(0)
        x = torch.rand(50, 3, 16, 16)
        y = cut_out(x)
        changed = (x != y).any(dim=1)
        assert bool((changed.flatten(1).sum(dim=1) >= 25).all() and (changed.flatten(1).sum(dim=1) <= 81).all())
        mean = x.mean(dim=(2, 3), keepdim=True).expand_as(x)
        assert torch.equal(y[x != y], mean[x != y])


class TestOptions:
    @pytest.mark.parametrize(
        "option",
        [{"augment": "crop"}, {"augment": "cutout"}, {"mixup": 0.5}, {"label_smoothing": 0.2}, {"ema": 0.9}],
    )
    @pytest.mark.parametrize("key", ["ccem", "max-mig", "aggnet", "two-stage"])
    def test_every_learner_takes_them(self, crowd, key, option):
        learner = fitted(crowd, key, **option)
        again = fitted(crowd, key, **option)
        plain = fitted(crowd, key)
        q = learner.predict_proba(crowd[0])
        assert np.array_equal(q, again.predict_proba(crowd[0]))
        assert not np.array_equal(q, plain.predict_proba(crowd[0]))

    def test_smoothing_is_the_cross_entropy_of_smooth_labels(self, crowd):
        X, votes = crowd
        share = 0.25
        learner = fitted(crowd, "two-stage", label_smoothing=share, epochs=1)
        trainer = learner._trainer
        index = np.arange(10)
        trainer.network.eval()
        trainer._set_modes = lambda size: None
        at = torch.as_tensor(index)
        loss = trainer._loss(index, at, trainer.edges.take(at))
        logits = trainer.forward(trainer.read(trainer.inputs, index))[0]
        hard = torch.eye(2)[torch.tensor(learner.first_stage_.label_codes[:10].tolist())]
        smooth = (1 - share) * hard + share / 2
        expected = -(smooth * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
        torch.testing.assert_close(loss, expected)

    def test_a_run_that_was_interrupted_continues_alike(self, crowd, tmp_path):
        settings = {
            "augment": "cutout", "mixup": 0.5, "label_smoothing": 0.1, "ema": 0.9, "holdout": 0.2, "select": "votes",
        }  # fmt: skip
        whole = fitted(crowd, "max-mig", **settings)
        X, votes = crowd
        given = {"network": "tanno", "epochs": 4, "batch_size": 20, "random_state": 3, "device": "cpu"} | settings
        file = tmp_path / "a.safetensors"
        made = find("max-mig", inputs=True)
        made.create(checkpoint=file, checkpoint_every=3, **given).fit(X, votes, callback=lambda e: e.epoch == 2)
        assert file.exists()  # written where it was stopped, though not due
        again = made.create(checkpoint=file, checkpoint_every=3, **given).fit(X, votes)
        assert np.array_equal(whole.predict_proba(X), again.predict_proba(X))
        assert [e.loss for e in whole.history_] == [e.loss for e in again.history_]

    def test_held_out_votes_are_measured_now_and_then(self, crowd):
        learner = fitted(crowd, holdout=0.2, epochs=5, measure_every=2)
        assert [epoch.held_out is not None for epoch in learner.history_] == [False, True, False, True, True]

    def test_a_callback_can_predict(self, crowd):
        seen = []
        X, votes = crowd
        learner = find("ccem", inputs=True).create(network="tanno", epochs=2, ema=0.9, device="cpu", random_state=0)
        learner.fit(X, votes, callback=lambda epoch: seen.append(learner.predict_proba(X)) and False)
        assert len(seen) == 2
        np.testing.assert_array_equal(seen[-1], learner.predict_proba(X))


def test_average_of_weights():
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, 0.0)
    average = WeightAverage(net, 0.5)
    for _ in range(3):
        with torch.no_grad():
            net.weight += 1.0
        average.update()
    # decays 1/10, 2/11, 3/12
    expected = 0.25 * (2 / 11 * (0.9 * 1.0) + 9 / 11 * 2.0) + 0.75 * 3.0
    with average.in_place():
        assert float(net.weight.detach()) == pytest.approx(expected)
    assert float(net.weight.detach()) == 3.0


@pytest.mark.parametrize("prior", [1.0, "crowd"])
def test_em_on_a_device_is_em_of_the_package(prior):
    votes = simulate.max_mig(150, dataset="cifar", case="copied", random_state=0).votes
    head = DeviceEM(votes.n_annotators, 10, prior)
    head.gold = np.where(np.arange(150) < 5, votes.truth, -1)
    head.start(votes)
    torch.manual_seed(0)
    log_f = torch.log_softmax(torch.randn(150, 10, dtype=torch.float64), dim=1)
    q = head.target.double()
    found, theta = head.round(q, log_f)
    np.testing.assert_allclose(found.numpy(), head.infer(q.numpy(), log_f.numpy()), atol=1e-12)
    head.finish(log_f, None)
    np.testing.assert_allclose(head.counts(found).numpy(), head.counted.numpy(), rtol=1e-5)
