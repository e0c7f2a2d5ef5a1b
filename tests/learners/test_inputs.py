"""What a learner looks at: every kind of input gives the same rows, in batches, and says what is wrong with it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.learners import inputs as module
from crowdwise.learners.inputs import ArrayInputs, DatasetInputs, FolderInputs, InputScale, as_inputs
from crowdwise.learners.joint_confusions import CCEM
from crowdwise.learners.trainer import Trainer, TrainingData
from crowdwise.learners.training_settings import TrainingSettings
from learners.crowd import small

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(11, 4))
SOME = np.array([7, 0, 7, 3])


class Squares(Dataset):
    """Items are made when they are asked for."""

    def __len__(self):
        return 9

    def __getitem__(self, n):
        return np.full((2, 3), n * n, dtype=np.float64), f"label {n}"


def rows(X, index=SOME):
    return as_inputs(X).rows(np.asarray(index))


class TestTables:
    @pytest.mark.parametrize(
        "X",
        [
            TABLE,
            TABLE.astype(np.float32),
            np.asfortranarray(TABLE),
            TABLE.tolist(),
            TABLE.astype(object),
            torch.from_numpy(TABLE),
            torch.from_numpy(TABLE).requires_grad_(),
            sp.csr_matrix(TABLE),
            sp.coo_matrix(TABLE),
            sp.csr_array(TABLE),
            TensorDataset(torch.from_numpy(TABLE)),
        ],
        ids=["double", "single", "fortran", "lists", "object", "tensor", "grad", "csr", "coo", "csr_array", "dataset"],
    )
    def test_every_kind_gives_the_same_rows(self, X):
        found = as_inputs(X)
        assert (len(found), found.shape) == (11, (4,))
        got = found.rows(SOME)
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got.numpy(), TABLE[SOME], rtol=1e-6)

    def test_data_frames(self):
        pandas = pytest.importorskip("pandas")
        np.testing.assert_allclose(rows(pandas.DataFrame(TABLE)).numpy(), TABLE[SOME], rtol=1e-6)

    def test_whole_numbers_and_flags(self):
        assert rows(np.arange(22).reshape(11, 2)).tolist() == [[14, 15], [0, 1], [14, 15], [6, 7]]
        assert rows(np.eye(11, dtype=bool), [1]).tolist() == [[0.0, 1.0, *[0.0] * 9]]

    def test_small_whole_numbers_are_what_other_whole_numbers_are(self):
        X = np.array([[0, 51, 255]], dtype=np.uint8)
        np.testing.assert_allclose(rows(X, [0]).numpy(), [[0.0, 51.0, 255.0]], atol=1e-7)
        np.testing.assert_allclose(rows(sp.csr_matrix(X), [0]).numpy(), [[0.0, 51.0, 255.0]], atol=1e-7)
        np.testing.assert_allclose(rows(torch.from_numpy(X), [0]).numpy(), [[0.0, 51.0, 255.0]], atol=1e-7)

    def test_a_learner_of_bytes_refuses_them_as_other_numbers(self, tmp_path):
        """They would not be divided by 255, and predictions would be wrong without a word."""
        X = np.random.default_rng(0).integers(0, 256, (40, 4, 4), dtype=np.uint8)
        learner = CCEM(epochs=1, network="linear", random_state=0).fit(X, Votes.from_dense((X[:, :2, 0] > 127) * 1))
        wanted = learner.predict_proba(X)
        for one in (learner, CCEM.load(learner.save(tmp_path / "kept"))):
            np.testing.assert_allclose(one.predict_proba(X / np.float32(255)), wanted, atol=1e-6)
            for bad in (X.astype(float), X.astype(int), torch.from_numpy(X).float()):
                with pytest.raises(InputError, match=r"with whole numbers of 8 bits.*give X as uint8, or divide"):
                    one.predict_proba(bad)

    def test_rows_are_copies(self):
        X = np.ones((3, 2), dtype=np.float32)
        rows(X, [0, 1]).fill_(7.0)
        assert (X == 1.0).all()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_row_that_is_not_finite_is_named(self, bad):
        X = TABLE.copy()
        X[7, 2] = bad
        for made in (X, sp.csr_matrix(X), torch.from_numpy(X), TensorDataset(torch.from_numpy(X))):
            with pytest.raises(InputError, match=r"Row 7 of X holds NaN or infinity"):
                rows(made)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (np.zeros(5), "X.reshape"),
            (np.zeros((2, 2, 2, 2, 2)), "found 5"),
            (np.zeros((5, 0)), "0 feature"),
            (np.array([["a", "b"]]), "must hold numbers"),
            (np.array([["a", 1]], dtype=object), "must hold numbers"),
            (np.zeros((3, 2), dtype=complex), "must hold numbers"),
            (np.array([["2020-01-01"]], dtype="datetime64[D]"), "must hold numbers"),
            ([[1.0, 2.0], [3.0]], "all of one length"),
        ],
        ids=["flat", "five dimensions", "no features", "text", "mixed", "complex", "dates", "ragged"],
    )
    def test_what_cannot_be_read_is_refused_in_words(self, X, message):
        with pytest.raises(InputError, match=message):
            as_inputs(X)

    def test_what_is_read_already_stays_as_it_is(self):
        found = as_inputs(TABLE)
        assert as_inputs(found) is found


class TestMemmap:
    def make(self, tmp_path, n=600):
        X, votes, _ = small(n=n)
        np.save(tmp_path / "x.npy", X)
        return X, votes, np.load(tmp_path / "x.npy", mmap_mode="r")

    def test_training_never_reads_it_whole(self, tmp_path, monkeypatch):
        X, votes, mapped = self.make(tmp_path)
        asked = []
        honest = ArrayInputs.rows

        def watched(self, index):
            asked.append(len(index))
            return honest(self, index)

        monkeypatch.setattr(ArrayInputs, "rows", watched)
        monkeypatch.setattr(module, "CHUNK", 100)
        learner = CCEM(epochs=2, batch_size=32, random_state=0).fit(mapped, votes)
        assert learner._trainer.resident is None
        assert max(asked) <= 512 < len(X) and len(asked) > 2 * len(X) // 32

    def test_it_teaches_the_same_as_the_array_in_memory(self, tmp_path):
        X, votes, mapped = self.make(tmp_path, n=200)
        one, two = (CCEM(epochs=2, random_state=0).fit(x, votes) for x in (X, mapped))
        assert one._trainer.resident is not None
        assert np.array_equal(one.predict_proba(X), two.predict_proba(mapped))


class TestStreaming:
    @pytest.mark.parametrize(("n", "shape", "together"), [(600, (3, 512, 512), 85), (5000, (16, 16), 4096)])
    def test_a_pass_over_large_images_reads_few_together(self, n, shape, together):
        images = as_inputs(np.broadcast_to(np.float32(0.0), (n, *shape)))
        sizes = [len(index) for index in module.chunks(images)]
        assert sizes[0] == together and sum(sizes) == n

    @pytest.mark.parametrize("kind", [sp.csr_matrix, lambda X: TensorDataset(torch.from_numpy(X))])
    def test_other_kinds_are_streamed_too(self, kind):
        X, votes, _ = small(n=80)
        learner = CCEM(epochs=1, random_state=0).fit(kind(X), votes)
        assert learner._trainer.resident is None
        assert learner.predict_proba(kind(X)).shape == (80, 3)

    def test_an_array_that_is_too_large_is_streamed(self, monkeypatch):
        X, votes, _ = small(n=80)
        whole = CCEM(epochs=2, random_state=0).fit(X, votes)
        monkeypatch.setattr("crowdwise.learners.trainer.RESIDENT", X.nbytes - 1)
        streamed = CCEM(epochs=2, random_state=0).fit(X, votes)
        assert whole._trainer.resident is not None and streamed._trainer.resident is None
        assert np.array_equal(whole.predict_proba(X), streamed.predict_proba(X))


class TestImages:
    def test_one_channel(self):
        X = RNG.normal(size=(5, 6, 7))
        assert as_inputs(X).shape == (1, 6, 7)
        np.testing.assert_allclose(rows(X, [4, 1]).numpy(), X[[4, 1], None], rtol=1e-6)

    def test_channels_last_are_brought_first(self):
        X = RNG.integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
        assert as_inputs(X).shape == (3, 6, 7)
        got = rows(X, [2])
        for channel in range(3):
            np.testing.assert_allclose(got[0, channel].numpy(), X[2, :, :, channel] / 255.0, atol=1e-7)

    def test_channels_first_stay(self):
        X = RNG.normal(size=(5, 3, 6, 7))
        assert as_inputs(X).shape == (3, 6, 7)
        np.testing.assert_allclose(rows(X, [2]).numpy(), X[[2]], rtol=1e-6)

    def test_channels_first_also_where_the_width_is_three(self):
        assert as_inputs(np.zeros((5, 3, 8, 3))).shape == (3, 8, 3)


class TestDatasets:
    def test_the_first_part_of_each_item(self):
        found = as_inputs(Squares())
        assert isinstance(found, DatasetInputs)
        assert (len(found), found.shape) == (9, (2, 3))
        assert found.rows(np.array([3, 2]))[:, 0, 0].tolist() == [9.0, 4.0]

    def test_an_empty_one_is_refused(self):
        with pytest.raises(InputError, match="empty"):
            as_inputs(TensorDataset(torch.zeros((0, 2))))

    def test_learns_from_it(self):
        X, votes, truth = small(n=120)
        learner = CCEM(epochs=15, random_state=0).fit(TensorDataset(torch.from_numpy(X)), votes)
        assert (learner.predict(X) == truth).mean() > 0.7


@pytest.fixture
def folder(tmp_path):
    """Six coloured images a to f, 5 wide and 4 high, and a text file that is none of them."""
    for n, name in enumerate("fbdace"):
        Image.fromarray(np.full((4, 5, 3), [10 * n, 100, 255], dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    return tmp_path


class TestFolders:
    def test_colour_in_the_order_of_names(self, folder):
        for given in (folder, str(folder)):
            found = as_inputs(given)
            assert isinstance(found, FolderInputs)
            assert (len(found), found.shape) == (6, (3, 4, 5))
            got = found.rows(np.arange(6))
            np.testing.assert_allclose(got[:, 0, 0, 0].numpy() * 255.0, [30, 10, 40, 20, 50, 0], atol=1e-4)
            np.testing.assert_allclose(got[:, 1].numpy(), 100 / 255.0, atol=1e-6)
            np.testing.assert_allclose(got[:, 2].numpy(), 1.0, atol=1e-6)

    @pytest.mark.parametrize("end", ["", ".png"])
    def test_in_the_order_of_the_items(self, folder, end):
        names = np.array([f"c{end}", f"f{end}"], dtype=object)
        got = as_inputs(folder, names).rows(np.arange(2))
        np.testing.assert_allclose(got[:, 0, 0, 0].numpy() * 255.0, [40, 0], atol=1e-4)

    def test_grey_images_have_one_channel(self, tmp_path):
        pixels = RNG.integers(0, 256, (3, 4, 5), dtype=np.uint8)
        for n, one in enumerate(pixels):
            Image.fromarray(one).save(tmp_path / f"{n}.png")
        found = as_inputs(tmp_path)
        assert found.shape == (1, 4, 5)
        np.testing.assert_allclose(found.rows(np.arange(3)).numpy(), pixels[:, None] / 255.0, atol=1e-6)

    def test_deep_grey_images_keep_their_shades(self, tmp_path):
        """16 bits per pixel are not cut off at white."""
        pixels = np.array([[0, 257 * 51], [257 * 102, 65535]], dtype=np.uint16)
        Image.fromarray(pixels).save(tmp_path / "a.png")
        got = as_inputs(tmp_path).rows(np.array([0]))
        np.testing.assert_allclose(got[0, 0].numpy(), [[0.0, 0.2], [0.4, 1.0]], atol=1e-4)

    def test_images_of_fractions_keep_them(self, tmp_path):
        pixels = np.array([[0.0, 0.2], [0.4, 1.5]], dtype=np.float32)
        Image.fromarray(pixels).save(tmp_path / "a.tif")
        np.testing.assert_array_equal(as_inputs(tmp_path).rows(np.array([0]))[0, 0].numpy(), pixels)
        Image.fromarray(np.full_like(pixels, np.nan)).save(tmp_path / "a.tif")
        with pytest.raises(InputError, match=r"a\.tif holds NaN"):
            as_inputs(tmp_path)

    def test_palettes_and_transparency_become_colours(self, tmp_path):
        Image.fromarray(np.full((4, 5, 4), [255, 0, 0, 128], dtype=np.uint8)).save(tmp_path / "a.png")
        Image.fromarray(np.full((4, 5, 3), [255, 0, 0], dtype=np.uint8)).convert("P").save(tmp_path / "b.png")
        got = as_inputs(tmp_path).rows(np.arange(2))
        assert got.shape == (2, 3, 4, 5)
        np.testing.assert_allclose(got[:, :, 0, 0].numpy(), [[1.0, 0.0, 0.0]] * 2, atol=0.02)

    def test_an_image_of_another_size_is_named_with_its_size(self, folder):
        Image.fromarray(np.zeros((7, 9, 3), dtype=np.uint8)).save(folder / "d.png")
        with pytest.raises(InputError, match=r"d\.png is an image of \(3, 7, 9\) and a\.png of \(3, 4, 5\)"):
            as_inputs(folder).rows(np.arange(6))

    def test_a_grey_one_among_coloured_ones_is_named(self, folder):
        Image.fromarray(np.zeros((4, 5), dtype=np.uint8)).save(folder / "d.png")
        with pytest.raises(InputError, match=r"d\.png is an image of \(1, 4, 5\)"):
            as_inputs(folder).rows(np.array([1, 3]))

    def test_missing_images_are_named(self, folder):
        names = np.array(["a", "zebra", "b", "yak"], dtype=object)
        with pytest.raises(InputError, match=r"no image for 2 of the 4 items: .*zebra.*yak"):
            as_inputs(folder, names)

    def test_a_broken_image_is_named(self, folder):
        (folder / "d.png").write_bytes(b"nonsense")
        with pytest.raises(InputError, match=r"d\.png could not be read as an image"):
            as_inputs(folder).rows(np.arange(6))

    def test_no_folder_and_no_images(self, tmp_path):
        with pytest.raises(InputError, match="no folder"):
            as_inputs(tmp_path / "nowhere")
        with pytest.raises(InputError, match="holds no images"):
            as_inputs(tmp_path)

    def test_learns_from_a_folder_named_like_the_items(self, tmp_path):
        rng = np.random.default_rng(1)
        truth = rng.integers(2, size=60)
        for n, k in enumerate(truth):
            bright = rng.integers(0, 120, (6, 6)) + 120 * k
            Image.fromarray(bright.astype(np.uint8)).save(tmp_path / f"item{n}.png")
        order = rng.permutation(60)  # the votes name the items in another order than the files
        votes = Votes.from_dense(np.column_stack([truth[order]] * 3), items=[f"item{n}" for n in order])
        learner = CCEM(epochs=15, random_state=0).fit(tmp_path, votes)
        assert (learner.predict(tmp_path, votes=votes) == truth[order]).mean() > 0.9
        by_name = np.array([int(file.stem[4:]) for file in as_inputs(tmp_path).files])
        assert (learner.predict(tmp_path) == truth[by_name]).mean() > 0.9


class TestScale:
    def check(self, X, plain):
        """Against numpy, in one chunk and in many."""
        scale = InputScale.of(as_inputs(X))
        got = scale(as_inputs(X).rows(np.arange(len(plain)))).numpy()
        np.testing.assert_allclose(got, plain, atol=2e-5)
        return scale

    def test_features(self, monkeypatch):
        monkeypatch.setattr(module, "CHUNK", 4)
        X = RNG.normal(5.0, [0.1, 1.0, 10.0, 100.0], (11, 4))
        assert self.check(X, (X - X.mean(axis=0)) / X.std(axis=0)).mean.shape == (4,)

    def test_the_unit_of_a_feature_does_not_matter(self):
        X = RNG.normal(1.0, 1.0, (40, 4))
        units = np.array([1e-12, 1e-3, 1e6, 1e15])
        self.check(X * units, (X - X.mean(axis=0)) / X.std(axis=0))
        constant = np.full((40, 3), [0.0, 7e-9, 1e9])
        self.check(constant, constant - constant)

    def test_channels_of_images(self, monkeypatch):
        monkeypatch.setattr(module, "CHUNK", 4)
        X = RNG.normal([[[1.0]], [[5.0]]], [[[1.0]], [[3.0]]], (11, 2, 4, 5))
        mean, deviation = X.mean(axis=(0, 2, 3), keepdims=True), X.std(axis=(0, 2, 3), keepdims=True)
        scale = self.check(X, (X - mean) / deviation)
        assert scale.mean.shape == (2, 1, 1)

    def test_a_constant_feature_is_only_moved(self):
        X = np.column_stack([np.full(11, 0.1), np.full(11, 1e6), TABLE[:, 0]])
        got = InputScale.of(as_inputs(X))(as_inputs(X).rows(np.arange(11))).numpy()
        np.testing.assert_allclose(got[:, :2], 0.0, atol=1e-6)
        np.testing.assert_allclose(got[:, 2].std(), 1.0, atol=1e-5)

    def test_sparse_features_are_stretched_together(self):
        """Zeros stay zeros, and a rare feature does not outgrow the others."""
        X = sp.random(50, 8, density=0.2, random_state=0, format="csr")
        dense = X.toarray()
        self.check(X, dense / np.sqrt((dense**2).mean()))
        zero = InputScale.of(as_inputs(sp.csr_matrix((5, 3))))
        assert zero.deviation.tolist() == [1.0] * 3

    def test_identity_changes_nothing(self):
        x = torch.from_numpy(RNG.normal(size=(3, 2, 4, 5)))
        assert torch.equal(InputScale.identity((2, 4, 5))(x), x)

    def test_a_learner_keeps_the_scale_of_its_training_data(self):
        X, votes, _ = small(n=80)
        scaled = CCEM(epochs=2, random_state=0).fit(X * 1000.0 + 5.0, votes)
        plain = CCEM(epochs=2, random_state=0).fit(X, votes)
        np.testing.assert_allclose(
            scaled.predict_proba(X[:7] * 1000.0 + 5.0), plain.predict_proba(X[:7]), atol=1e-3
        )  # fmt: skip
        raw = CCEM(epochs=2, scale=False, random_state=0).fit(X, votes)
        assert not np.allclose(raw.predict_proba(X), plain.predict_proba(X), atol=1e-3)


def test_a_network_that_gives_other_columns_is_refused():
    from crowdwise.errors import ParameterError
    from crowdwise.learners.joint_confusions import Confusions, identity

    X, votes, _ = small(n=20)
    head = Confusions(votes.n_annotators, 3, identity(3))
    data = TrainingData(as_inputs(X), votes)
    trainer = Trainer(torch.nn.Linear(6, 4), head, data, TrainingSettings(epochs=1), device="cpu")
    with pytest.raises(ParameterError, match=r"gave \(20, 4\) for 20 inputs: .* 3 classes"):
        trainer.run()
