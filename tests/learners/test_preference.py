"""The losses of direct preference optimisation: values, gradients, and no bias where answers are turned round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from crowdwise import dpo_loss
from crowdwise.errors import InputError, ParameterError


def four(n: int, seed: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(n, generator=rng, dtype=torch.float64) for _ in range(4)]


def ell(h: Any) -> Any:
    return np.logaddexp(0.0, -h)


def test_values_by_hand() -> None:
    a, b, c, d = four(6)
    h = 0.3 * ((a - b) - (c - d)).numpy()
    eps = np.array([0.0, 0.1, 0.3, 0.45, 0.8, 1.0])
    rates = torch.tensor(eps)
    plain = dpo_loss(a, b, c, d, beta=0.3, reduction="none").numpy()
    assert np.allclose(plain, ell(h))
    smoothed = dpo_loss(a, b, c, d, beta=0.3, form="smoothed", flip_rate=rates, reduction="none").numpy()
    assert np.allclose(smoothed, (1 - eps) * ell(h) + eps * ell(-h))
    robust = dpo_loss(a, b, c, d, beta=0.3, form="robust", flip_rate=rates, reduction="none").numpy()
    assert np.allclose(robust, ((1 - eps) * ell(h) - eps * ell(-h)) / (1 - 2 * eps))
    assert np.allclose(robust[0], plain[0]) and np.allclose(robust[5], ell(-h)[5])  # always turned: turn it back
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    mean = float(dpo_loss(a, b, c, d, beta=0.3, weight=weight))
    assert mean == pytest.approx(float((weight.numpy() * ell(h)).sum() / 6))
    assert float(dpo_loss(a, b, c, d, beta=0.3, reduction="sum")) == pytest.approx(ell(h).sum())


@pytest.mark.parametrize("form", ["plain", "smoothed", "robust"])
def test_gradients(form: str) -> None:
    parts = [p.requires_grad_() for p in four(5, seed=1)]
    more: dict[str, Any] = {} if form == "plain" else {"flip_rate": torch.tensor([0.1, 0.3], dtype=torch.float64),
                                                       "annotator": torch.tensor([0, 1, 1, 0, 1])}  # fmt: skip
    assert torch.autograd.gradcheck(lambda *p: dpo_loss(*p, beta=0.7, form=form, **more), parts)
    # Far out, nothing overflows.
    far = torch.tensor([800.0, -800.0], requires_grad=True)
    zero = torch.zeros(2)
    if form != "plain":
        more = {"flip_rate": 0.2}
    loss = dpo_loss(far, zero, zero, zero, beta=1.0, form=form, **more)
    loss.backward()  # type: ignore[no-untyped-call]
    assert bool(torch.isfinite(loss)) and far.grad is not None and bool(torch.isfinite(far.grad).all())


def test_the_corrected_loss_is_unbiased() -> None:
    """Over answers turned round, the robust loss has the mean and the gradient of the true one, the others do not."""
    n, rng = 200_000, np.random.default_rng(0)
    rates = np.array([0.05, 0.3, 0.8])
    annotator = rng.integers(0, 3, n)
    margin = rng.normal(1.0, 1.0, n)  # of the truly better answer
    turned = rng.random(n) < rates[annotator]
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(n, dtype=torch.float64)

    def found(h: Any, form: str) -> tuple[float, float]:
        more = {} if form == "plain" else {"flip_rate": torch.tensor(rates), "annotator": torch.tensor(annotator)}
        loss = dpo_loss(scale * torch.tensor(h), zero, zero, zero, beta=1.0, form=form, **more)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(loss, scale)
        return float(loss.detach()), float(slope)

    true = found(margin, "plain")
    seen = np.where(turned, -margin, margin)
    robust, plain, smoothed = (found(seen, form) for form in ("robust", "plain", "smoothed"))
    assert np.abs(np.subtract(robust, true)).max() < 0.02
    assert min(abs(plain[0] - true[0]), abs(plain[1] - true[1])) > 0.1
    assert abs(smoothed[1] - true[1]) > 0.1
    # And exactly, for every pair: (1 - e) robust(h) + e robust(-h) = l(h).
    h = torch.linspace(-3, 3, 7, dtype=torch.float64)
    none = torch.zeros(7, dtype=torch.float64)
    for e in (0.1, 0.4, 0.9):
        one, other = (
            dpo_loss(x, none, none, none, beta=1.0, form="robust", flip_rate=e, reduction="none") for x in (h, -h)
        )
        assert torch.allclose((1 - e) * one + e * other, dpo_loss(h, none, none, none, beta=1.0, reduction="none"))


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"form": "soft"}, ParameterError, "form='soft'"),
        ({"reduction": "max"}, ParameterError, "reduction='max'"),
        ({"beta": 0.0}, ParameterError, "beta=0.0"),
        ({"form": "robust"}, ParameterError, "needs a flip_rate"),
        ({"flip_rate": 0.1}, ParameterError, "takes no flip_rate"),
        ({"form": "robust", "flip_rate": 1.5}, ParameterError, "from 0 to 1"),
        ({"form": "robust", "flip_rate": 0.49}, InputError, "carry no information"),
        ({"form": "robust", "flip_rate": [0.1, 0.2]}, InputError, "there are 3 pairs"),
        (
            {"form": "robust", "flip_rate": [0.1], "annotator": torch.tensor([0, 0, 1])},
            InputError,
            "names 1 annotators",
        ),
        ({"weight": torch.tensor([-1.0, 1.0, 1.0])}, InputError, "weights"),
    ],
)
def test_wrong_use(more: dict[str, Any], error: type[Exception], message: str) -> None:
    a = torch.zeros(3)
    with pytest.raises(error, match=message):
        dpo_loss(a, a, a, a, **more)


def test_wrong_shapes() -> None:
    with pytest.raises(InputError, match="four rows"):
        dpo_loss(torch.zeros(3), torch.zeros(2), torch.zeros(3), torch.zeros(3))
    with pytest.raises(InputError, match="infinite or NaN"):
        dpo_loss(torch.full((1,), np.nan), torch.zeros(1), torch.zeros(1), torch.zeros(1))
