"""Local steps without perturbation: the main line of Algorithm 1, without any guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpfedvis.mechanisms.base import Protection
from dpfedvis.mechanisms.variables import VariableUpload
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class LocalSteps(VariableUpload):
    """Exact Y_p after Q local steps."""

    name: ClassVar[str] = "local-steps"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact landmarks of one client, no noise"

    def sensitivity(self, setting: Setting, records: float) -> None:
        """Nothing is protected."""
        return None
