"""Inputs in the votes' order: from arrays, tables, folders of images, and from a data set."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import crowdwise as cw
from crowdwise.data.features import class_codes, read_features
from crowdwise.errors import InputError, LabelError, ReadError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def names(*values):
    return cw.Votes.from_records([(v, "ann", "a") for v in values]).items


def dataset(folder, items, classes=("cat", "dog"), **arrays):
    folder.mkdir(exist_ok=True)
    rows = "".join(f"{name},ann,{classes[n % 2]}\n" for n, name in enumerate(items))
    (folder / "labels.csv").write_text("item,annotator,label\n" + rows)
    if arrays:
        np.savez(folder / "features.npz", **arrays)
    return cw.read_dataset(folder)


# -------------------------------------------------------------------- a data set


def test_names_find_the_rows(tmp_path):
    data = dataset(tmp_path, ["c", "a", "b"], x_train=X, id_train=np.array(["a", "b", "c", "nobody"]))
    assert data.inputs.tolist() == X[[2, 0, 1]].tolist()
    assert data.test is None


def test_whole_numbers_are_row_numbers(tmp_path):
    data = dataset(tmp_path, [3, 1, 0], x_train=X)
    assert data.votes.items.tolist() == [0, 1, 3]
    assert data.inputs.tolist() == X[[0, 1, 3]].tolist()
    assert dataset(tmp_path, [0, 1, 2, 3], x_train=X).inputs.tolist() == X.tolist()


def test_a_table_of_items_names_the_rows(tmp_path):
    tmp_path.joinpath("texts.csv").write_text("task,text\nc,three\na,one\nb,two\nd,four\n")
    assert dataset(tmp_path, ["a", "b", "c"], x_train=X).inputs.tolist() == X[[1, 2, 0]].tolist()
    tmp_path.joinpath("texts.csv").write_text("task,text\nc,three\na,one\nb,two\n")
    with pytest.raises(InputError, match="does not say which row belongs to which item"):
        _ = dataset(tmp_path, ["a", "b", "c"], x_train=X).inputs


@pytest.mark.parametrize(
    ("items", "arrays", "words"),
    [
        (["a", "b", "c", "d"], {"x_train": X}, ["'a', 'b', 'c' and 1 more", "id_train"]),
        ([1, 2, 3, 4], {"x_train": X}, ["from 0 to 3", "no row for 4", "id_train"]),
        (["a", "b"], {"x_train": X, "id_train": np.array(["a", "c", "d", "e"])}, ["no row for 1 of the 2", "'b'"]),
        (["a", "b"], {"x_train": X, "id_train": np.array(["a", "b"])}, ["4 rows and 2 names"]),
        (["a"], {"x_train": X, "id_train": np.array(["a", "a", "b", "c"])}, ["'a' more than once"]),
        ([0, 1], {"one": X, "two": X}, ["holds one, two", "x_train"]),
        ([0, 1], {}, ["no features.npz", "--features"]),
    ],
)
def test_what_does_not_fit_is_said_with_what_to_do(tmp_path, items, arrays, words):
    with pytest.raises((InputError, LabelError)) as caught:
        _ = dataset(tmp_path, items, **arrays).inputs
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("classes", "meta", "given", "codes"),
    [
        (("cat", "dog"), None, ["dog", "cat"], [1, 0]),
        (("cat", "dog"), None, [1, 0], [1, 0]),
        ((0, 1), None, [1, 0], [1, 0]),
        ((5, 7), None, [7, 5], [1, 0]),
        ((0, 1), '{"classes": ["cat", "dog"]}', ["dog", "cat"], [1, 0]),
        (("cat", "dog"), '{"classes": ["dog", "cat"]}', ["dog", "cat"], [0, 1]),
    ],
)
def test_test_classes_by_name_by_code_and_by_legend(tmp_path, classes, meta, given, codes):
    if meta:
        tmp_path.joinpath("meta.json").write_text(meta)
    x_test, y_test = dataset(tmp_path, [0, 1], classes, x_train=X, x_test=X[:2], y_test=np.array(given)).test
    assert x_test.tolist() == X[:2].tolist()
    assert y_test.tolist() == codes


def test_a_test_class_that_nobody_knows(tmp_path):
    data = dataset(tmp_path, [0, 1], x_train=X, x_test=X[:2], y_test=np.array(["cat", "cow"]))
    with pytest.raises(LabelError, match=r"'cow'.*'cat', 'dog'"):
        _ = data.test
    with pytest.raises(LabelError, match="2"):
        class_codes([0, 2], data.votes.classes)
    data = dataset(tmp_path, [0, 1], x_train=X, x_test=X[:2], y_test=np.array(["cat"]))
    with pytest.raises(InputError, match="2 rows in x_test and 1 in y_test"):
        _ = data.test


# -------------------------------------------------------------------- files


def test_arrays_in_files(tmp_path):
    np.save(tmp_path / "x.npy", X)
    found = read_features(tmp_path / "x.npy")
    assert isinstance(found.x, np.memmap)
    assert found.rows_of(names(2, 0)).tolist() == X[[0, 2]].tolist()
    np.savez(tmp_path / "one.npz", anything=X)
    assert read_features(tmp_path / "one.npz").rows_of(names(0, 1, 2, 3)).tolist() == X.tolist()
    np.savez(tmp_path / "x.npz", x=X, id=np.array(list("abcd")), x_test=X + 1, y_test=np.arange(4))
    found = read_features(tmp_path / "x.npz")
    assert found.rows_of(names("d", "a")).tolist() == X[[3, 0]].tolist()
    items, x, y = found.unseen()
    assert items.tolist() == [0, 1, 2, 3] and x.tolist() == (X + 1).tolist() and y.tolist() == [0, 1, 2, 3]
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(X))
    assert read_features(tmp_path / "s.npz").rows_of(names(3, 1)).toarray().tolist() == X[[1, 3]].tolist()


@pytest.mark.parametrize("name", ["id_train", "id", "ids", "id_test", "task_test", "y_test"])
def test_names_and_classes_are_no_inputs(tmp_path, name):
    np.savez(tmp_path / "x.npz", **{name: np.array([["a", "b"]])})
    with pytest.raises(InputError, match="expected x_train"):
        read_features(tmp_path / "x.npz")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_with_an_item_column(tmp_path, ending):
    table = pl.DataFrame({"task": ["b", "a"], "width": [1.5, 2.5], "height": [3, None]})
    file = tmp_path / f"x.{ending}"
    table.write_csv(file) if ending == "csv" else table.write_parquet(file)
    rows = read_features(file).rows_of(names("a", "b"))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[2.5, np.nan], [1.5, 3.0]])


def test_numbers_as_names_in_a_table(tmp_path):
    (tmp_path / "x.csv").write_text("item,x,y\n7,1,2\n5,3,4\n")
    assert read_features(tmp_path / "x.csv").rows_of(names(5, 7)).tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_a_folder_of_images_is_looked_up_by_name(tmp_path):
    from PIL import Image

    for name in ("a", "b"):
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    found = read_features(tmp_path)
    assert found.rows_of(names("b", "a")) == tmp_path
    assert found.unseen()[0].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"item,colour\na,red\n", ["'colour'", "'red'", "Encode"]),
        ("x.csv", b"item\na\nb\n", ["no columns besides"]),
        ("x.csv", b"item,x,y\n", ["names 3 columns and has no rows"]),
        ("x.csv", b"item,x\n,1\nb,2\n", ["line 2 has no name"]),
        ("x.npy", b"garbage", ["could not be read as a numpy array"]),
        ("x.npz", b"garbage", ["could not be read as a numpy archive"]),
        ("x.doc", b"1", ["x.doc is of an unknown format", ".npz"]),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_features(tmp_path / name)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_no_file_and_no_images(tmp_path):
    with pytest.raises(ReadError, match="There is no file"):
        read_features(tmp_path / "none.npz")
    with pytest.raises(InputError, match="holds no images"):
        read_features(tmp_path)


# -------------------------------------------------------------------- real data


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "test"), [("labelme", (1000, 512), 1188), ("music_genre", (700, 124), 300)])
def test_real_inputs_belong_to_their_items(real, name, shape, test):
    data = cw.read_dataset(real(name))
    assert data.inputs.shape == shape
    assert len(data.test[1]) == test
    # The files also have the true class of each row, which the truth of the votes must agree with.
    rows = {row.tobytes(): y for row, y in zip(data.features["x_train"], data.features["y_train"], strict=True)}
    found = [rows[row.tobytes()] for row in data.inputs]
    assert np.mean(np.array(found) == data.votes.classes[data.votes.truth]) > 0.999
