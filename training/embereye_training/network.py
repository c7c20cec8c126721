"""The appearance network: five convolutions that halve the picture, two pooled views of the last, one logit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

INPUT_SIDE = 112  # pixels
CHANNELS = (16, 24, 40, 64, 96)
RESIDUAL_FROM = 2  # the first stage with a residual convolution behind it
MOMENTUM = 0.9  # of the running statistics
EPSILON = 1e-5

Tree = dict[str, Any]


def initial(seed: int) -> tuple[Tree, Tree]:
    """(parameters, running statistics), drawn with `seed`."""
    random = np.random.default_rng(seed)
    parameters: Tree = {}
    statistics: Tree = {}

    def convolution(name: str, before: int, after: int, scale: float) -> None:
        deviation = (2.0 / (9 * before)) ** 0.5
        parameters[name] = {
            "kernel": jnp.asarray(random.normal(0, deviation, (3, 3, before, after)), jnp.float32),
            "scale": jnp.full(after, scale, jnp.float32),
            "offset": jnp.zeros(after, jnp.float32),
        }
        statistics[name] = {"mean": jnp.zeros(after), "variance": jnp.ones(after)}

    before = 3
    for stage, after in enumerate(CHANNELS):
        convolution(f"down{stage}", before, after, 1.0)
        if stage >= RESIDUAL_FROM:
            convolution(f"same{stage}", after, after, 0.2)
        before = after
    parameters["logit"] = {
        "kernel": jnp.asarray(random.normal(0, 0.05, 2 * before), jnp.float32),
        "offset": jnp.zeros(()),
    }
    return parameters, statistics


def parameter_count(parameters: Tree) -> int:
    """How many numbers are learnt."""
    return sum(leaf.size for leaf in jax.tree.leaves(parameters))


def forward(parameters: Tree, statistics: Tree, pictures: jax.Array, train: bool) -> tuple[jax.Array, Tree]:
    """(logits, statistics) of `pictures` (count, INPUT_SIDE, INPUT_SIDE, 3), BGR, -1..1."""
    renewed: Tree = {}

    def block(name: str, x: jax.Array, stride: int) -> jax.Array:
        its = parameters[name]
        x = jax.lax.conv_general_dilated(
            x, its["kernel"], (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        if train:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            past = statistics[name]
            renewed[name] = {
                "mean": MOMENTUM * past["mean"] + (1 - MOMENTUM) * mean,
                "variance": MOMENTUM * past["variance"] + (1 - MOMENTUM) * variance,
            }
        else:
            mean, variance = statistics[name]["mean"], statistics[name]["variance"]
            renewed[name] = statistics[name]
        factor = its["scale"] * jax.lax.rsqrt(variance + EPSILON)
        return x * factor + (its["offset"] - mean * factor)

    x = pictures
    for stage in range(len(CHANNELS)):
        x = jax.nn.relu(block(f"down{stage}", x, 2))
        if stage >= RESIDUAL_FROM:
            x = jax.nn.relu(x + block(f"same{stage}", x, 1))
    pooled = jnp.concatenate([x.mean((1, 2)), x.max((1, 2))], axis=1)
    last = parameters["logit"]
    return pooled @ last["kernel"] + last["offset"], renewed


def folded(parameters: Tree, statistics: Tree) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Kernel (3, 3, before, after) and offset of each convolution with its normalisation in them; and of the logit."""
    layers = {}
    for name, its in parameters.items():
        if name == "logit":
            layers[name] = (np.asarray(its["kernel"]), np.asarray(its["offset"]))
            continue
        factor = np.asarray(its["scale"]) / np.sqrt(np.asarray(statistics[name]["variance"]) + EPSILON)
        offset = np.asarray(its["offset"]) - np.asarray(statistics[name]["mean"]) * factor
        layers[name] = (np.asarray(its["kernel"]) * factor, offset)
    return layers
