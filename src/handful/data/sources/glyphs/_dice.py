"""Random integers and sines that are the same to the bit on every machine, for drawing glyphs in fixed point."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

FULL_TURN = 1024
"""Angles are integers; this many make a full turn."""

ONE = 4096
"""Factors (sines, scales, shears) are integers; this many make 1."""

_FOUR_UNIFORMS_STD = 37837


class Dice:
    """Random integers by hashing a counter (splitmix64, Steele et al. 2014): every label has its own sequence."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed

    def child(self, label: str) -> Dice:
        """Dice of their own, whose sequences have nothing to do with these."""
        return Dice(f"{self._seed}/{label}")

    def bits(self, label: str, shape: Sequence[int]) -> NDArray[np.uint64]:
        """64 random bits per place."""
        key = int.from_bytes(hashlib.sha256(f"{self._seed}/{label}".encode()).digest()[:8], "little")
        counter = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64)
        mixed = np.uint64(key) + counter * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (mixed ^ (mixed >> np.uint64(31))).reshape(shape)

    def between(self, label: str, low: int, high: int, shape: Sequence[int]) -> IntArray:
        """Uniform integers from `low` to `high`, both included."""
        wide = (self.bits(label, shape) >> np.uint64(32)).astype(np.int64)
        return low + ((wide * (high - low + 1)) >> 32)

    def normal(self, label: str, std: int | IntArray, shape: Sequence[int]) -> IntArray:
        """Integers that are normal to the eye: the sum of four uniforms, so never beyond 3.5 deviations."""
        bits = self.bits(label, shape)
        quarters = sum(((bits >> np.uint64(16 * part)) & np.uint64(0xFFFF)).astype(np.int64) for part in range(4))
        centred: IntArray = np.asarray(quarters, dtype=np.int64) - 2 * 0xFFFF
        return centred * std // _FOUR_UNIFORMS_STD

    def choose(self, label: str, weights: Sequence[int], shape: Sequence[int]) -> IntArray:
        """Indices into `weights`, each as often as its weight says."""
        point = self.between(label, 0, sum(weights) - 1, shape)
        return np.searchsorted(np.cumsum(weights), point, side="right").astype(np.int64)


def sine(angle: IntArray) -> IntArray:
    """The sine in units of 1/ONE by Bhaskara's rational formula: exact in integers, and within 0.002 of the truth."""
    half = FULL_TURN // 2
    within = angle % FULL_TURN
    fold = within % half
    arch = fold * (half - fold)
    value = 16 * ONE * arch // (5 * half * half - 4 * arch)
    return np.where(within < half, value, -value)


def cosine(angle: IntArray) -> IntArray:
    """The cosine in units of 1/ONE."""
    return sine(angle + FULL_TURN // 4)


def rotate(points: IntArray, angle: IntArray) -> IntArray:
    """Points (..., 2) turned by `angle` (...) about the origin."""
    x, y, along, across = points[..., 0], points[..., 1], cosine(angle), sine(angle)
    return np.stack([x * along - y * across, x * across + y * along], axis=-1) >> 12
