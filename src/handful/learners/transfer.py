"""The pre-trained baseline: plain classification of the training classes, then ridge regression (appendix A)."""

from __future__ import annotations

from torch import Tensor, nn

from handful.episodes import Episode
from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, KernelLearner, Predictor
from handful.learners.r2d2 import R2D2


class Transfer(BaseLearner):
    """In training mode, a linear layer over all `classes` training classes, trained with cross-entropy;
    in evaluation mode, R2-D2's ridge regression on the features, with nothing meta-learnt.

    With `normalise` the layer sees features normalised over the batch. Half of an untrained network's features are the
    same for all images, so without normalisation thousands of outputs swing together at every step, and it takes
    hundreds of episodes until learning begins. Appendix A has a plain fully-connected layer: `normalise=False`.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        lam: float = 50.0,
        lam_per_example: bool = True,
        intercept: bool = True,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise InvalidOptionError(f"Transfer needs the number of training classes, at least 2, but got {classes}.")
        norm = nn.BatchNorm1d(features, affine=False, track_running_stats=False)
        self.normalise: nn.Module = norm if normalise else nn.Identity()
        self.classify = nn.Linear(features, classes)
        self.ridge = R2D2(
            lam, learn_scale=False, learn_bias=False, lam_per_example=lam_per_example, intercept=intercept
        )

    @property
    def kernel(self) -> KernelLearner:
        """The ridge regression of evaluation mode."""
        return self.ridge

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """In training the support is ignored, because the classes are those of the whole training split."""
        return self._over_classes if self.training else self.ridge.fit(support, targets)

    def pose(self, episode: Episode) -> Episode:
        """All images of the episode as queries, labelled by their class among all training classes."""
        return episode.over_classes(count=self.classify.out_features)

    def _over_classes(self, images: Tensor) -> Tensor:
        """Logits (..., classes) of all images of a batch, from their features (..., e)."""
        logits: Tensor = self.classify(self.normalise(images.flatten(0, -2)))
        return logits.reshape(*images.shape[:-1], -1)
