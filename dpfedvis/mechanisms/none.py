"""No perturbation: the paper's FedDL as it stands, without any guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpfedvis.mechanisms.base import Protection
from dpfedvis.mechanisms.gradients import GradientUpload
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class NoPerturbation(GradientUpload):
    """Exact gradients."""

    name: ClassVar[str] = "none"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact gradients, no noise"

    def sensitivity(self, setting: Setting, records: float) -> None:
        """Nothing is protected."""
        return None
