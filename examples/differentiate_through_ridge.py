"""Choose lambda by gradient descent through ridge regression and its exact leave-one-out error.

python examples/differentiate_through_ridge.py
"""

from __future__ import annotations

import torch

from handful.solvers import gram, leave_one_out


def main() -> None:
    """Forty noisy samples of a linear rule; the best lambda is found by its gradient, not by a grid."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 100, generator=generator, dtype=torch.float64)
    weights = torch.randn(100, 1, generator=generator, dtype=torch.float64)
    targets = features @ weights + 6.0 * torch.randn(40, 1, generator=generator, dtype=torch.float64)
    kernel = gram(features)

    log_lam = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([log_lam], lr=0.2)
    for step in range(101):
        error = (leave_one_out(kernel, targets, log_lam.exp()) - targets).square().mean()
        if step % 25 == 0:
            lam = float(log_lam.detach().exp())
            print(f"step {step:3d}  lam {lam:8.2f}  left-out squared error {float(error.detach()):.3f}")
        optimiser.zero_grad()
        error.backward()
        optimiser.step()


if __name__ == "__main__":
    main()
