"""The frame of the landmarks: norm, mean and principal subspace of the records, each by a release of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from accounting.events import Trust
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram, public_kernel
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import AXES_UNIT, Grid, integer_axes
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import SubspaceView
from dpfedvis.server.session import Session
from dpfedvis.server.subspace import components_seen, low_frequencies, principal_subspace, unseen_subspace


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Settings of the stages before the landmarks.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
    public : PublicParameters
        Of a single release.
    components, tau_x, bounds, image
        As in `dpfedvis.server.private_map.Learner`.
    """

    trust: Trust
    public: PublicParameters
    components: int
    tau_x: float | None
    bounds: tuple[float, float] | None
    image: tuple[int, ...] | None

    def seen(self, features: int) -> int:
        """Return how many values of a record its second moments are of."""
        basis = self._basis(features)
        return features if basis is None else basis.shape[1]

    def stages(self, features: int) -> list[tuple[Mechanism, PublicParameters]]:
        """Return all releases with their public parameters, as far as known before the first."""
        whole = self._for(features)
        norms: list[tuple[Mechanism, PublicParameters]] = []
        if self.tau_x is None:
            norms.append((ScaleHistogram(trust=self.trust), whole))
        second = (SecondMoments(trust=self.trust), self._for(self.seen(features)))
        return [*norms, (Moments(trust=self.trust), whole), second]

    def learn(self, session: Session) -> Subspace:
        """Ask for the releases, one after the other, and return the subspace."""
        features, tau = session.contract.features, self.tau_x
        public = self._for(features)
        if tau is None:
            histogram = ScaleHistogram(trust=self.trust)
            counts, variance = session.once(histogram, public)
            tau = histogram.norm_bound(counts, math.sqrt(variance), features)
        moments = Moments(trust=self.trust, tau_x=tau)
        average, variance = session.once(moments, public)
        # Of two uniform points of the box.
        expected = 1 / public_kernel(features, self.bounds).mean_gamma if self.bounds else None
        spread = moments.mean_squared_distance(average, variance, expected) / 2
        centre = moments.mean(average, variance, self.bounds)
        # Noise must not move the centre out of the ball to which all records were clipped.
        centre = centre * min(1.0, tau / max(float(np.linalg.norm(centre)), tau))
        raw = Grid.of_norm(tau, features)
        centre, basis = raw.snap(centre), self._basis(features)
        if basis is None:
            second = SecondMoments(trust=self.trust, centre=centre, clip=math.sqrt(spread), norm=tau)
            average, variance = session.once(second, public)
        else:
            # Offsets from the centre, of records within τ, as coordinates.
            second = SecondMoments(trust=self.trust, clip=math.sqrt(spread), norm=2 * tau)
            seen = basis.shape[1]
            axes = integer_axes(basis) / AXES_UNIT
            session.prepare(SubspaceView(Subspace(centre, axes, np.full(seen, spread / seen), raw)))
            average, variance = session.once(second, self._for(seen), "subspace")
        noise = math.sqrt(variance) * second.clip**2
        matrix = second.matrix(average, self.seen(features))
        if not components_seen(matrix, noise):
            seed = self.public.public_seed
            return unseen_subspace(centre, spread, raw, Streams(seed).generator("unseen directions"))
        # Second moments of all features tell their sum better than the mean square did.
        known = 0.0 if basis is None else spread
        return principal_subspace(centre, matrix, noise, self.components, raw, basis, known)

    def _for(self, features: int) -> PublicParameters:
        return replace(self.public, features=features)

    def _basis(self, features: int) -> Array | None:
        """Return the low frequencies in which second moments are taken; None for all features."""
        if self.image is None or math.prod(self.image) != features:
            return None
        return low_frequencies(self.image)
