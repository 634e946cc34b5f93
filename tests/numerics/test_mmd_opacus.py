"""The gradient against torch's autograd, and the clipped gradient against Opacus.

Opacus knows nothing of row scaling: it forms the gradient of every record, takes its norm and clips it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfedvis.numerics import mmd
from dpfedvis.numerics.exact import KERNEL_BITS, Grid
from dpfedvis.numerics.exact_sums import kernel_pulls
from dpfedvis.numerics.kernels import Kernel

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

# torch's hooks warn when the records, which are the input of the module, need no gradient.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing when gradients are computed:UserWarning")

KERNELS = [Kernel((0.4,)), Kernel((0.1, 0.5, 1.5))]
# Opacus divides by norm + 1e-6; a large unit of gradient makes that of no weight.
UNIT = 1000.0


def torch_kernel(X, Y, kernel):
    distances = ((X[:, None, :] - Y[None, :, :]) ** 2).sum(dim=-1)
    return sum(torch.exp(-gamma * distances) for gamma in kernel.gammas) / len(kernel.gammas)


class Landmarks(torch.nn.Module):
    """The landmarks as parameters; the output is one loss a record, whose gradient is −UNIT·(x − y_i)v_i."""

    def __init__(self, Y, kernel):
        super().__init__()
        self.Y = torch.nn.Parameter(torch.tensor(Y))
        self.kernel = kernel

    def forward(self, X):
        return -UNIT / (2 * self.kernel.mean_gamma) * torch_kernel(X, self.Y, self.kernel).sum(dim=1)


def opacus_clipped_gradient(X, Y, kernel, clip, denominator):
    """Take one noiseless step of Opacus's optimizer, and return the gradient that it stepped by."""
    module = opacus.GradSampleModule(Landmarks(Y, kernel), loss_reduction="mean")
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=UNIT * clip,
        expected_batch_size=denominator,
        loss_reduction="mean",
    )
    module(torch.tensor(X)).mean().backward()
    assert module._module.Y.grad_sample.shape == (len(X), *Y.shape)
    optimizer.step()
    step = torch.tensor(Y) - module._module.Y.detach()
    return 4 * kernel.mean_gamma / (len(Y) * UNIT) * step.numpy()


@pytest.fixture
def points():
    rng = np.random.default_rng(5)
    return rng.normal(size=(40, 6)), 0.6 * rng.normal(size=(8, 6))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_gradient_matches_autograd_of_the_objective(points, kernel, estimator):
    X, Y = torch.tensor(points[0]), torch.tensor(points[1], requires_grad=True)

    def own(Z):
        n, K = len(Z), torch_kernel(Z, Z, kernel)
        return (K.sum() - n) / (n * (n - 1)) if estimator == "unbiased" else K.mean()

    objective = own(X) - 2 * torch_kernel(X, Y, kernel).mean() + own(Y)
    objective.backward()
    assert mmd.mmd2(*points, kernel, estimator=estimator) == pytest.approx(objective.item(), abs=1e-13)
    np.testing.assert_allclose(
        mmd.gradient(*points, kernel, estimator=estimator), Y.grad.numpy(), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("denominator", [40, 64])
def test_clipped_gradient_matches_opacus(points, kernel, part, denominator):
    X, Y = points
    clip = part * mmd.max_clip(kernel, len(Y))
    grid = Grid.of_norm(8.0, X.shape[1])
    cells = kernel_pulls(grid.cells(X), grid.nearest(Y), kernel, grid, clip=clip)
    value = -4 * kernel.mean_gamma / (denominator * len(Y)) * grid.step * 2.0**-KERNEL_BITS * cells
    expected = opacus_clipped_gradient(X, Y, kernel, clip, denominator)
    # Weights are rounded down to 16 bits, which is worth most where little is left of them.
    np.testing.assert_allclose(value, expected, atol=1e-3 * np.abs(expected).max() / math.sqrt(part))


@pytest.mark.parametrize("kernel", KERNELS)
def test_some_records_are_clipped_and_some_are_not(points, kernel):
    """Otherwise the comparison above would say little."""
    X, Y = points
    clip = 0.3 * mmd.max_clip(kernel, len(Y))
    unclipped = [mmd.data_gradient(x[None], Y, kernel, denominator=1) for x in X]
    norms = np.array([np.linalg.norm(one) for one in unclipped]) * len(Y) / (4 * kernel.mean_gamma)
    assert 3 <= np.count_nonzero(norms > clip) <= len(X) - 3
