"""The two index patterns of sparse MLA."""

from __future__ import annotations

import re

import pytest
import torch

from mha_sink.testing.sparse_indices import uniform_indices, window_pool_indices


def test_uniform_indices():
    indices = uniform_indices(64, 96, 40, empty=0.25, seed=1)
    assert (indices.shape, indices.dtype) == ((64, 96), torch.int32)
    assert indices.unique().tolist() == list(range(-1, 40))
    assert (indices == -1).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(indices, uniform_indices(64, 96, 40, empty=0.25, seed=1))
    assert not torch.equal(indices, uniform_indices(64, 96, 40, empty=0.25, seed=2))
    assert (uniform_indices(64, 96, 40, empty=0.0) >= 0).all()


@pytest.mark.parametrize(("tokens", "topk"), [(0, 32), (5, 0), (0, 0)])
def test_uniform_indices_without_slots(tokens, topk):
    assert uniform_indices(tokens, topk, 0).shape == (tokens, topk)


def test_the_window_slides():
    indices = window_pool_indices(7, 3, window=3)
    assert indices.dtype == torch.int32
    assert indices.tolist() == [
        [-1, -1, 0], [-1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6],
    ]  # fmt: skip


def test_the_pool_is_causal_and_without_repetition():
    tokens, window, ratio = 70, 8, 4
    indices = window_pool_indices(tokens, 20, window=window, ratio=ratio, num_pool=15)
    assert torch.equal(indices[:, :window], window_pool_indices(tokens, window, window=window))
    for token, row in enumerate(indices[:, window:].tolist()):
        blocks = [index - tokens for index in row if index >= 0]
        visible = min((token + 1) // ratio, 15)
        assert len(blocks) == min(visible, 12)
        assert len(set(blocks)) == len(blocks)
        assert all(0 <= block < visible for block in blocks)
        assert all(index == -1 for index in row[len(blocks) :])
    assert set(indices[-1, window:].tolist()) != set(indices[-2, window:].tolist())


@pytest.mark.parametrize(("topk", "share"), [(512, 0.855), (1024, 0.615)])
def test_share_of_slots_of_the_published_shapes(topk, share):
    indices = window_pool_indices(4096, topk)
    assert (indices >= 0).double().mean().item() == pytest.approx(share, abs=0.001)
    assert 4096 + 1000 < indices.max() < 4096 + 1024


@pytest.mark.parametrize(
    ("options", "given", "needed"),
    [
        ({"topk": 64}, "topk is 64", "at least window = 128"),
        ({"topk": 1153}, "topk is 1153", "at most window + num_pool = 1152"),
        ({"topk": 128, "window": 0}, "window is 0", "at least 1"),
        ({"topk": 128, "ratio": 0}, "ratio is 0", "at least 1"),
        ({"topk": 128, "num_pool": -1}, "num_pool is -1", "at least 0"),
    ],
)
def test_refused(options, given, needed):
    with pytest.raises(
        ValueError, match=f"window_pool_indices: {given}; need .*{re.escape(needed)}"
    ):
        window_pool_indices(8, **options)
