"""Tensors of numpy against those of torch: the same numbers, types and shapes."""

import numpy as np
import pytest
import torch

from p2pfl.core import codecs, numpy_tensors

ROWS = np.random.default_rng(7).normal(size=(3, 4)).astype(np.float32)

EXPRESSIONS = (
    # types: numbers of Python and tensors without axes do not widen
    "x * 2",
    "x * 2.5",
    "x / 3",
    "i / 3",
    "i * 2.5",
    "i + b",
    "i + x",
    "t.where(b, i, x)",
    "b + 1",
    "x * t.tensor(2.0, dtype=t.float64)",
    "i * t.tensor(2.0, dtype=t.float64)",
    "x + x.double()",
    "1 / x",
    "i // 2",
    "i >> 1",
    "i & 3",
    "~b",
    "-x",
    "(1 << i.clamp(0, 3))",
    "t.full((2,), 3)",
    "t.full((2,), 3.0)",
    "t.full((2,), True)",
    "t.arange(3)",
    "t.arange(1.0, 3.0)",
    "t.tensor([1.0, 2.0])",
    "t.tensor([1, 2])",
    "t.tensor([[True]])",
    "t.tensor([x.sum(), x.sum()])",
    "t.tensor([x.sum(dtype=t.float64), x.sum()])",
    "t.tensor([np.float64(1.5)])",
    "t.where(b, x, 0.0)",
    "t.where(b, i, -1)",
    "t.where(b, x.double(), x)",
    "x.square().sum(dim=1)",
    "i.sum()",
    "b.sum(1)",
    "x.sum(dtype=t.float64)",
    "x.mean()",
    "x.double().mean((0, 1))",
    "x.mean(1, keepdim=True)",
    "x.double().var(0, correction=0)",
    "x.norm()",
    "t.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=t.float64)",
    "x.max()",
    "x.max(0).indices",
    "x.max(1).values",
    "x.amin(1)",
    "x.argmax(dim=1)",
    "x.sort(descending=True).values",
    "x.abs().topk(2).values",
    "x.argsort(dim=0)",
    "i.sort(dim=1, descending=True, stable=True).indices",
    "i.to(t.uint8).sort(dim=1, descending=True).values",
    "t.tensor([1.0, t.nan, 3.0]).sort(descending=True).values",
    "x.cumsum(1)",
    "i.diff(dim=-1)",
    "x.diagonal()",
    "x.softmax(-1)",
    "i.prod(1)",
    "t.tensor([1.0, t.nan, 3.0], dtype=t.float64).nanmean()",
    "t.nn.functional.one_hot(i.abs() % 4, 4)",
    "t.aminmax(x).max",
    # shapes
    "x.flatten(1)",
    "x.unsqueeze(1).squeeze(1)",
    "x.view(2, 6)",
    "x.view(t.uint8)",
    "x.T",
    "x.mT",
    "x.movedim(0, -1)",
    "x.unsqueeze(0).permute(2, 0, 1)",
    "x[:1].expand(3, -1)",
    "x.repeat(2, 1)",
    "t.cat([x, x[:1]])",
    "t.cat([x, i], dim=-1)",
    "t.stack([x, x], dim=1)",
    "t.stack(x.unbind(1))",
    "t.split(x, 2)[1]",
    "t.split(x, [1, 3], dim=-1)[1]",
    "x.tensor_split([1], dim=-1)[1]",
    "t.nn.functional.pad(x, (0, 2), value=1)",
    "t.nn.functional.pad(x, (1, 0, 2, 0))",
    # places
    "x[i[0] % 3]",
    "x[b]",
    "x[:, -1]",
    "x[t.arange(3), t.arange(3)]",
    "x.gather(1, i.abs() % 4)",
    "x.index_select(0, t.tensor([2, 0]))",
    "x.clone().index_copy_(0, t.tensor([2]), x[:1])",
    "t.zeros(2, 4).index_add_(0, t.tensor([1, 1, 0]), x)",
    "t.zeros(2).scatter_reduce(0, t.tensor([1, 1, 0]), x[:, 0], 'amax')",
    "t.zeros(3, 4).scatter(-1, i.abs() % 4, x)",
    "b.nonzero()",
    "t.bincount(t.tensor([1, 1, 3]), minlength=5)",
    "t.searchsorted(t.tensor([0, 0, 1, 3]), t.arange(4))",
    # functions
    "x.clamp(-0.5, 0.5)",
    "x.clamp_min(0)",
    "t.lerp(x, -x, 0.25)",
    "x.round()",
    "(x / 0).nan_to_num(0.0, posinf=1.0, neginf=-1.0)",
    "(x / 0).isfinite()",
    "(x - x).log()",
    "t.log_softmax(x, 1)",
    "t.nn.functional.cross_entropy(x, t.tensor([1, 3, -100]), reduction='none')",
    "t.nn.functional.cross_entropy(x, t.tensor([1, 3, 0]))",
    "t.nn.functional.binary_cross_entropy_with_logits(x, b.to(x.dtype), reduction='none')",
    "t.nn.functional.embedding_bag(i[0, :3] % 3, x, t.tensor([0, 1, 1]), mode='sum', per_sample_weights=x[:, 0])",
    "x @ x.T",
    "x ** 2",
    "x.eq(x)",
    "x.add(x, alpha=2)",
    "x.clone().sub_(x.double(), alpha=0.5)",
    "x.clone().mul_(i)",
    "t.maximum(x, -x)",
    "x.to(t.float64).to(t.float16)",
    "x.to(t.bfloat16).float()",
    "(x.double() * 1e300).to(t.bfloat16).to(t.float64)",
    "i.to(t.bfloat16).to(t.int64)",
    "x.sum().to(t.bfloat16).float()",
    "x.T.to(t.bfloat16)[1:, 0].to(t.float16)",
    "x.to(t.bfloat16).view(t.uint8)",
    "x.new_full((2,), 1)",
    "x.new_zeros(2, dtype=t.int64)",
)


def environment(library):
    whole = np.array([[5, -3, 2, 7], [1, 0, -8, 4], [2, 2, 9, -1]])
    return {
        "t": library,
        "np": np,
        "x": library.from_numpy(ROWS.copy()),
        "i": library.from_numpy(whole),
        "b": library.from_numpy(whole > 1),
    }


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_the_type_shape_and_numbers_of_torch(expression):
    expected = eval(expression, environment(torch))  # noqa: S307 -- the expressions above
    ours = eval(expression, environment(numpy_tensors))  # noqa: S307 -- the same
    assert str(ours.dtype) == str(expected.dtype)
    assert tuple(ours.shape) == tuple(expected.shape)
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "change", ["x[0] += 1", "x[:, 1].mul_(2)", "x.view(-1)[3] = 9", "x.T.mul_(2)", "x[1] /= 2", "x[0][1].mul_(2)"]
)
def test_views_change_what_they_are_of(change):
    ours, theirs = environment(numpy_tensors), environment(torch)
    exec(change, ours)  # noqa: S102 -- the statements above
    exec(change, theirs)  # noqa: S102
    assert ours["x"].tolist() == theirs["x"].tolist()


def test_products_of_integers_wrap_around_as_in_torch():
    ours, theirs = (library.tensor(2**62) * 4 + library.tensor([2**62, 1]) * 3 for library in (numpy_tensors, torch))
    assert ours.tolist() == theirs.tolist()


def test_a_view_that_would_copy_is_refused_as_in_torch():
    for library in (numpy_tensors, torch):
        with pytest.raises(RuntimeError, match="reshape"):
            environment(library)["x"].T.view(-1)


def test_numbers_that_repeat_cannot_be_written_and_others_can():
    for library in (numpy_tensors, torch):
        row = library.zeros(1, 2)
        with pytest.raises((RuntimeError, ValueError)):
            row.expand(3, -1).add_(1)
        row.expand(1, -1).add_(1)
        assert row.tolist() == [[1, 1]]


def test_every_bfloat16_is_the_float32_that_torch_has_and_returns_to_the_same_bits():
    bits = np.arange(2**16, dtype=np.uint16)
    ours = numpy_tensors.from_numpy(bits).view(numpy_tensors.bfloat16).float()
    theirs = torch.from_numpy(bits).view(torch.bfloat16).float()
    assert np.array_equal(ours.numpy().view(np.uint32), theirs.numpy().view(np.uint32))  # NaN bit for bit
    back = ours.to(numpy_tensors.bfloat16).view(numpy_tensors.uint16).numpy()
    quiet = np.where(np.isnan(ours.numpy()), bits | 0x40, bits)
    assert np.array_equal(back, quiet)


def test_float32_of_any_bits_rounds_to_the_bfloat16_of_torch():
    middles = np.arange(2**16, dtype=np.uint32)[:, None] << 16  # each bfloat16, and what lies around the next half
    near = (middles + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).ravel()
    drawn = np.random.default_rng(7).integers(0, 2**32, size=2**21, dtype=np.uint32)
    values = np.concatenate([near, drawn]).view(np.float32)
    ours = numpy_tensors.from_numpy(values).to(numpy_tensors.bfloat16).view(numpy_tensors.uint16).numpy()
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    unknown = np.isnan(values)
    assert unknown.any()
    assert np.array_equal(ours[~unknown], theirs[~unknown])
    upper = values.view(np.uint32) >> 16
    assert np.array_equal(ours[unknown], upper[unknown] | 0x40)  # sign and upper payload stay; torch's kernels differ


def test_the_codec_of_bfloat16_sends_the_bytes_that_torch_sends(monkeypatch):
    rows = np.random.default_rng(3).normal(size=(2, 33)).astype(np.float32) * np.float32(1e37)
    sent = []
    for library in (numpy_tensors, torch):
        monkeypatch.setattr(codecs, "torch", library)
        left, coded = codecs.encode_rows(
            codecs.Half("bfloat16"), library.from_numpy(rows), at=codecs.At(("a", "b"), 0, 0)
        )
        bytes_sent = coded.data(1)
        assert coded.read(bytes_sent, sender="b").tolist() == left[1].tolist()
        sent.append((bytes_sent.tolist(), left.tolist()))
    assert sent[0] == sent[1]


def test_what_is_missing_says_so():
    with pytest.raises(AttributeError):
        numpy_tensors.zeros(2).fft()
    with pytest.raises(RuntimeError, match="needs torch"):
        numpy_tensors.device("cuda")
