"""The leak guard: a test that sees more than it may is an error, not a footnote."""

from __future__ import annotations

import hashlib

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from handful.data.table import Benchmark, ClassDataset
from handful.episodes import Episode, LabelledSet
from handful.errors import LeakError
from handful.meta.model import FewShotModel

SHARED = 0.5
"""Share of a class's images found in another split from which on it counts as a class of that split renamed."""

TOLERANCE = 1e-3
"""Share of the logits' range by which float32 answers may differ between batches of another size."""


def check_splits(benchmark: Benchmark) -> None:
    """Refuse a benchmark of which two splits share a class: by name, or by the images themselves."""
    parts = {"train": benchmark.train, "val": benchmark.val, "test": benchmark.test}
    owner: dict[str, str] = {}
    for part, dataset in parts.items():
        for name in dataset.classes:
            if name in owner:
                raise LeakError(f"Class '{name}' of {benchmark.name} is in both '{owner[name]}' and '{part}'.")
            owner[name] = part
    seen: dict[bytes, str] = {}
    for part, dataset in parts.items():
        hashes = _image_hashes(dataset)
        first = 0
        for name, count in zip(dataset.classes, dataset.counts.tolist(), strict=True):
            known = [seen[digest] for digest in hashes[first : first + count] if digest in seen]
            first += count
            if len(known) > SHARED * count:
                raise LeakError(
                    f"{len(known)} of the {count} images of {part} class '{name}' of {benchmark.name} are also in "
                    f"'{known[0]}': it is a class of that split under another name. Remove it from one of them."
                )
        seen |= dict.fromkeys(hashes, part)


def _image_hashes(dataset: ClassDataset, chunk: int = 500) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(dataset.rows), chunk):
        pixels = dataset.gather(dataset.rows[start : start + chunk]).movedim(-3, -1).contiguous().flatten(1).numpy()
        found += [hashlib.blake2b(image.data, digest_size=16).digest() for image in pixels]
    return found


def check_model(model: FewShotModel, episode: Episode) -> None:
    """Refuse a model in evaluation mode that looks at other queries without declaring it (`Limits.transductive`).

    Two ways: no batch norm may take its statistics from the test batch, and the answer to some queries must not change
    when the other queries are left out.
    """
    leaky = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    }
    for name, module in leaky.items():
        if _is_used(module, model, episode):  # a learner may have layers that serve in training only
            raise LeakError(
                f"Batch norm '{name}' takes its statistics from the test batch "
                f"({'it is in training mode' if module.training else 'it keeps no running statistics'}), so that every "
                f"answer depends on the other queries. Call model.eval(), and let batch norm keep running statistics."
            )
    if model.learner.limits.transductive:
        return
    whole = _answers(model, episode, slice(None))
    spread = float(whole.max() - whole.min())
    parts = (slice(0, 1), slice(0, None, 2))
    gap = max(float((whole[part] - _answers(model, episode, part)).abs().max()) for part in parts)
    if gap > TOLERANCE * spread:
        raise LeakError(
            f"Logits of {type(model.learner).__name__} move by up to {gap:.2g}, {100 * gap / spread:.2g}% of their "
            f"range, when other queries of the episode are left out, although it does not declare itself transductive. "
            f"Something looks across queries: normalise by the support set or by running statistics, or declare "
            f"Limits(transductive=True)."
        )


def _is_used(module: _BatchNorm, model: FewShotModel, episode: Episode) -> bool:
    calls: list[bool] = []
    handle = module.register_forward_pre_hook(lambda *_: calls.append(True))
    try:
        _answers(model, episode, slice(None))
    finally:
        handle.remove()
    return bool(calls)


def _answers(model: FewShotModel, episode: Episode, part: slice) -> torch.Tensor:
    query = LabelledSet(episode.query.inputs[part], episode.query.targets[part])
    with torch.no_grad():
        answers: torch.Tensor = model(Episode(episode.support, query, episode.classes))
    return answers
