"""Exposure: do landmarks lie nearer to the records that they were learned from than to fresh ones?"""

from attacks.exposure.landmarks import Exposure, exposure

__all__ = ["Exposure", "exposure"]
