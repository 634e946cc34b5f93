"""Privacy accounting on its own: budgets, release events, sensitivities, calibration, accountants and the ledger.

Set a budget, receive calibrated noise:

>>> from accounting import Budget, PlannedRelease, calibrate, sensitivity
>>> delta = sensitivity.gradient(gamma=0.005, records=4000, landmarks=500)
>>> plan = calibrate(Budget(1.0, 1e-5), PlannedRelease("gradient", delta, count=50))
>>> f"{plan['gradient'].sigma:.4g}"
'7.155e-05'

Importing this package is cheap: dp-accounting and Opacus load when one of their accountants is first used.
"""

from accounting import risk, sensitivity
from accounting.accountants import ACCOUNTANTS, Accountant, Reading, accountant, compare, tightest
from accounting.budget import Budget
from accounting.calibration import CalibratedPlan, CalibratedRelease, PlannedRelease, calibrate, calibrate_to_risk
from accounting.composition import Composition
from accounting.errors import (
    AccountingError,
    BudgetExceeded,
    CannotAccount,
    InvalidParameter,
    LedgerCorrupted,
    LedgerError,
    UnprotectedReleaseError,
)
from accounting.events import (
    Event,
    GaussianRelease,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
    nominal_mu,
)
from accounting.gdp import gaussian_delta, gaussian_epsilon, gaussian_log_delta, gaussian_mu
from accounting.ledger import Ledger, Receipt
from accounting.noise import DiscreteNoise, NoiseSource, SeededNoise

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "AccountingError",
    "Budget",
    "BudgetExceeded",
    "CalibratedPlan",
    "CalibratedRelease",
    "CannotAccount",
    "Composition",
    "DiscreteNoise",
    "Event",
    "GaussianRelease",
    "InvalidParameter",
    "Ledger",
    "LedgerCorrupted",
    "LedgerError",
    "NoiseSource",
    "PlannedRelease",
    "PostProcessing",
    "Reading",
    "Receipt",
    "SampledGaussianRelease",
    "SeededNoise",
    "Unprotected",
    "UnprotectedReleaseError",
    "accountant",
    "calibrate",
    "calibrate_to_risk",
    "compare",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu",
    "nominal_mu",
    "risk",
    "sensitivity",
    "tightest",
]
