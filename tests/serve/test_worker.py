"""The worker: full batches, a queue with an end, failures that stay with their owner, a stop that loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from handful.classifier.embedder import Embedder
from handful.embeddings.preprocessing import Preprocessing
from handful.errors import NotFiniteError
from handful.serve.decode import TooLargeError
from handful.serve.worker import BusyError, Worker


class Network:
    """Features are pixels; it notes its batches, and waits for `go` in the first one."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, images: Any) -> Any:
        self.batches.append(len(images))
        self.begun.set()
        self.go.wait(10)
        flat = images.flatten(1)
        return flat / (flat > 0)[:, :1]  # NaN or infinite if the first pixel is black


def embedder(network: Any) -> Embedder:
    return Embedder("own", Preprocessing(1, 2, 1), network, "")


def image(first: int, second: int) -> Any:
    return np.array([[[[first], [second]]]], dtype=np.uint8)


def run(scene: Callable[[Worker, Network], Awaitable[Any]]) -> Any:
    async def with_worker() -> Any:
        worker, network = Worker(queue=8, batch=4), Network()
        try:
            return await asyncio.wait_for(scene(worker, network), 20)
        finally:
            network.go.set()
            await worker.stop()

    return asyncio.run(with_worker())


def test_what_waits_together_is_one_batch_and_each_gets_its_own() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        net = embedder(network)
        first = asyncio.create_task(worker.embed(net, image(1, 1)))
        await asyncio.to_thread(network.begun.wait)
        rest = [asyncio.create_task(worker.embed(net, image(3, 4 * k))) for k in range(5)]
        await asyncio.sleep(0.05)
        network.go.set()
        await first
        found = np.concatenate([await each for each in rest])
        assert network.batches == [1, 4, 1]
        expected = np.array([[3, 4 * k] for k in range(5)], dtype=float)
        # float32 pixels divided by 255: a few units of their last place
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)

    run(scene)


def test_images_that_fail_do_not_fail_those_in_the_same_batch() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        net = embedder(network)
        first = asyncio.create_task(worker.embed(net, image(1, 1)))
        await asyncio.to_thread(network.begun.wait)
        bad, good = (asyncio.create_task(worker.embed(net, image(k, 9))) for k in (0, 9))
        await asyncio.sleep(0.05)
        network.go.set()
        await first
        assert (await good).shape == (1, 2)
        with pytest.raises(NotFiniteError):
            await bad

    run(scene)


def test_a_large_request_is_split_into_batches_and_stays_in_order() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        network.go.set()
        many = np.concatenate([image(1, k) for k in range(10)])
        found = await worker.embed(embedder(network), many)
        assert network.batches == [4, 4, 2]
        assert np.all(np.diff(found[:, 1]) > 0)

    run(scene)


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        with worker.admit(6):
            with pytest.raises(BusyError, match="6 images") as refused, worker.admit(3):
                pass
            assert refused.value.retry_after >= 1
            with worker.admit(2):
                assert worker.pending == 8
        assert worker.pending == 0

    run(scene)


def test_more_images_than_the_queue_holds_are_not_told_to_come_back() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        with pytest.raises(TooLargeError, match="at most 8 images"), worker.admit(9):
            pass
        assert worker.pending == 0

    run(scene)


def test_stopping_finishes_what_was_admitted_and_admits_nothing_more() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        async def request() -> Any:
            with worker.admit(1):
                return await worker.embed(embedder(network), image(1, 1))

        accepted = asyncio.create_task(request())
        await asyncio.to_thread(network.begun.wait)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError, match="stopping"), worker.admit(1):
            pass
        assert not stopping.done()
        network.go.set()
        assert (await accepted).shape == (1, 2)
        await stopping

    run(scene)


def test_a_request_that_was_given_up_is_not_embedded() -> None:
    async def scene(worker: Worker, network: Network) -> None:
        net = embedder(network)
        first = asyncio.create_task(worker.embed(net, image(1, 1)))
        await asyncio.to_thread(network.begun.wait)
        given_up = asyncio.create_task(worker.embed(net, image(1, 2)))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.sleep(0.05)
        network.go.set()
        await first
        await worker.embed(net, image(1, 3))
        assert network.batches == [1, 1]

    run(scene)
