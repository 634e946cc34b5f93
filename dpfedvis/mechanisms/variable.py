"""Variable perturbation: the client takes Q steps of its own and uploads its Y_p with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting import sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms.variables import VariableUpload
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class VariablePerturbation(VariableUpload):
    """Noise on Y_p after Q local steps.

    The paper names this perturbation and does not calibrate it; the sensitivity is ours
    (`accounting.sensitivity.variable`).
    """

    name: ClassVar[str] = "variable"

    def sensitivity(self, setting: Setting, records: float) -> float:
        """Δ of Y_p, with the sharp smoothness constant.

        That constant is for a mean over the records, so that the denominator must be their number: neither sampling,
        whose batches may be larger than their expected size, nor a public stand-in for the number will do.
        """
        if setting.sampling_rate is not None:
            raise InvalidParameter("sampling_rate", setting.sampling_rate, "None for variable")
        if setting.adjacency != "replace-one":
            raise InvalidParameter("adjacency", setting.adjacency, "replace-one for variable")
        return sensitivity.variable(
            gamma=setting.kernel.gammas,
            records=records,
            landmarks=setting.landmarks,
            step_size=setting.step_size,
            local_steps=setting.local_steps,
            adjacency=setting.adjacency,
            smoothness=setting.smoothness,
        )
