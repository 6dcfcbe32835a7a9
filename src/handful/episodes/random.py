"""Random numbers as a pure function of (seed, stream, position): stateless, in any order, in whole batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInts = NDArray[np.uint64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(words: UInts) -> UInts:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every output bit depends on every input bit."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def random_words(seed: int, streams: Ints, count: int) -> UInts:
    """`count` uniform 64-bit words for each stream number: streams (...,) -> (..., count)."""
    with np.errstate(over="ignore"):
        key = _mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
        start = _mix(key ^ _mix(streams.astype(np.uint64) * _GOLDEN + _FIRST))
        return _mix(start[..., None] + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)


def unit(words: UInts) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from words."""
    return np.ldexp((words >> np.uint64(11)).astype(np.float64), -53)


def below(words: UInts, bound: Ints) -> Ints:
    """Uniform integers in 0..bound-1 from words; the bias is below bound / 2^32."""
    return (((words >> np.uint64(32)) * bound.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def choose(words: UInts, population: Ints) -> Ints:
    """As many distinct integers below `population` as half the words allow, in random order.

    words (..., 2 m), population (...) -> (..., m). Floyd's algorithm draws the set in m steps, whatever the size of the
    population, each for all rows at once. The other half of the words shuffles it.
    """
    m = words.shape[-1] // 2
    picked = np.empty((*words.shape[:-1], m), dtype=np.int64)
    for step in range(m):
        last = population - m + step
        drawn = below(words[..., step], last + 1)
        taken = (picked[..., :step] == drawn[..., None]).any(-1)
        picked[..., step] = np.where(taken, last, drawn)
    order = np.argsort(words[..., m:], axis=-1, kind="stable")
    return np.take_along_axis(picked, order, axis=-1)
