import pickle

import numpy as np
import pytest

from embereye_training.network import Head, SmokeHeads, model, parameter_count
from embereye_training.trunk import EPSILON, Convolution, WeightsError, convolutions, read_weights

RNG = np.random.default_rng(2)
STAGES = ((1, 3, 1, 32, 16), (2, 3, 6, 16, 24), (2, 5, 6, 24, 40), (3, 3, 6, 40, 80), (3, 5, 6, 80, 112),
          (4, 5, 6, 112, 192), (1, 3, 6, 192, 320))  # fmt: skip


class _Storage:
    """Represents, in a pickle, the numbers of a storage that follow later, as in PyTorch's files."""

    def __init__(self, key, count, kind="FloatStorage"):
        self.saved = ("storage", _Global("torch", kind), key, "cpu", count, None)


class _Global:
    def __init__(self, module, name):
        self.module, self.name = module, name


class _Pickler(pickle._Pickler):
    """Pickles references that only PyTorch could import."""

    def persistent_id(self, obj):
        return obj.saved if isinstance(obj, _Storage) else None

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, _Global):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())  # type: ignore[attr-defined]
        elif isinstance(obj, _Tensor):
            self.save(_Global("torch._utils", "_rebuild_tensor_v2"))
            self.save(obj.arguments)
            self.write(pickle.REDUCE)  # type: ignore[attr-defined]
        else:
            super().save(obj, save_persistent_id)


class _Tensor:
    def __init__(self, key, array, steps):
        self.arguments = (_Storage(key, array.size), 0, array.shape, steps, False, None)


def saved(path, tensors, magic=0x1950A86A20F9469CFC6C):
    """Write a file like PyTorch before 1.6, with arrays by name, each saved transposed like converted kernels."""
    with path.open("wb") as file:
        for start in (magic, 1001, {"little_endian": True}):
            pickle.dump(start, file, protocol=2)
        content = {}
        for name, array in tensors.items():
            steps = tuple(np.cumprod((1, *array.shape[:-1])).tolist())  # the first axis is the nearest
            content[name] = _Tensor(name, array, steps)
        _Pickler(file, protocol=2).dump(content)
        pickle.dump(list(tensors), file, protocol=2)
        for array in tensors.values():
            file.write(array.size.to_bytes(8, "little") + array.astype("<f4").tobytes(order="F"))
    return path


def test_arrays_are_read_in_the_order_of_their_axes(tmp_path):
    arrays = {"kernel": RNG.normal(size=(4, 3, 2, 2)).astype(np.float32), "offset": np.arange(5, dtype=np.float32)}
    arrays_read = read_weights(saved(tmp_path / "weights.pth", arrays))
    assert set(arrays_read) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(arrays_read[name], array), name


@pytest.mark.parametrize("content", [b"", b"no weights", pickle.dumps(7), pickle.dumps(0x1950A86A20F9469CFC6C)])
def test_a_file_that_contains_no_weights_is_refused(tmp_path, content):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"weights\.pth"):
        read_weights(path)


def test_only_arrays_are_created_from_a_file(tmp_path):
    with (tmp_path / "evil.pth").open("wb") as file:
        for start in (0x1950A86A20F9469CFC6C, 1001, {}):
            pickle.dump(start, file)
        file.write(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(WeightsError, match=r"os\.system"):
        read_weights(tmp_path / "evil.pth")


def random_weights():
    weights = {}

    def convolution(name, normalisation, shape):
        weights[f"{name}.weight"] = RNG.normal(0, (shape[1] * shape[2] ** 2) ** -0.5, shape)
        weights[f"{normalisation}.weight"] = RNG.uniform(0.8, 1.2, shape[0])
        for part in ("bias", "running_mean"):
            weights[f"{normalisation}.{part}"] = RNG.normal(0, 0.1, shape[0])
        weights[f"{normalisation}.running_var"] = RNG.uniform(0.8, 1.2, shape[0])

    convolution("_conv_stem", "_bn0", (32, 3, 3, 3))
    number = 0
    for blocks, side, widening, first, after in STAGES:
        before = first
        for _ in range(blocks):
            wide, name = before * widening, f"_blocks.{number}"
            if widening > 1:
                convolution(f"{name}._expand_conv", f"{name}._bn0", (wide, before, 1, 1))
            convolution(f"{name}._depthwise_conv", f"{name}._bn1", (wide, 1, side, side))
            convolution(f"{name}._project_conv", f"{name}._bn2", (after, wide, 1, 1))
            before, number = after, number + 1
    return {name: array.astype(np.float32) for name, array in weights.items()}


def test_a_normalisation_is_folded_into_its_convolution():
    weights = random_weights()
    first = next(iter(convolutions(weights)))
    factor = weights["_bn0.weight"] / np.sqrt(weights["_bn0.running_var"] + EPSILON)
    assert first.kernel == pytest.approx((weights["_conv_stem.weight"] * factor[:, None, None, None])[:, ::-1])
    assert first.offset == pytest.approx(weights["_bn0.bias"] - weights["_bn0.running_mean"] * factor)


def convolved(x, layer: Convolution):
    """Apply `layer` to `x` (channels, side, side), by the definition of a convolution."""
    side, reach = x.shape[1], layer.kernel.shape[2]
    padding = max(0, (-(-side // layer.stride) - 1) * layer.stride + reach - side)
    x = np.pad(x, ((0, 0), *[(padding // 2, padding - padding // 2)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), axis=(1, 2))[
        :, :: layer.stride, :: layer.stride
    ]
    if layer.groups > 1:
        result = np.einsum("cyxij,cij->cyx", windows, layer.kernel[:, 0])
    else:
        result = np.einsum("cyxij,ocij->oyx", windows, layer.kernel)
    return result + layer.offset[:, None, None]


def normal(count):
    return RNG.normal(0, 0.05, count).astype(np.float32)


def test_the_exported_network_computes_the_same_as_its_layers():
    onnxruntime = pytest.importorskip("onnxruntime")
    layers = list(convolutions(random_weights()))
    head = Head(RNG.normal(0, 0.05, 640).astype(np.float32), 0.3)
    pixels = RNG.uniform(-1, 1, (3, 64, 64)).astype(np.float32)
    x = entry = source = pixels
    for number, layer in enumerate(layers):
        x = convolved(x, layer)
        if layer.bounded:
            x = np.clip(x, 0, 6)
        else:
            x = x + entry if layer.adds else x
            entry = x
        entry = x if number == 0 else entry
        source = x if x.shape[0] == 112 and not layer.bounded else source
    expected = np.concatenate([x.mean((1, 2)), x.max((1, 2))]) @ head.kernel + head.offset
    smoke = SmokeHeads(Head(normal(864), 0.1), Head(normal(432), -0.2))
    session = onnxruntime.InferenceSession(model(layers, head, smoke).SerializeToString())
    odds, whole, places = session.run(["odds", "smoke", "places"], {"pixels": pixels[None]})
    assert odds.shape == whole.shape == (1, 1, 1, 1)
    assert float(odds.ravel()[0]) == pytest.approx(float(expected), abs=0.02 * max(1.0, abs(float(expected))))
    pooled = np.concatenate([source.mean((1, 2)), source.max((1, 2)), x.mean((1, 2)), x.max((1, 2))])
    assert float(whole.ravel()[0]) == pytest.approx(float(pooled @ smoke.whole.kernel + 0.1), abs=0.05)
    doubled = x.repeat(2, axis=1).repeat(2, axis=2)
    expected_places = np.tensordot(smoke.place.kernel, np.concatenate([source, doubled]), 1) - 0.2
    assert places[0, 0] == pytest.approx(expected_places, abs=0.05)
    assert parameter_count(layers, head) == 2_939_120 + 641
