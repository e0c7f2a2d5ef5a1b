"""Learners: classifiers from inputs and votes. They need torch, which is an extra; all else works without it."""

from importlib.util import find_spec

from crowdwise.errors import ExtraError

_missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
if _missing:
    raise ExtraError(
        f"Learning a classifier needs {' and '.join(_missing)}, not installed here: pip install 'crowdwise[deep]'."
    )
