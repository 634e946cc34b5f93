"""A recorded run as an attack on gradients sees it: one client, round by round."""

from __future__ import annotations

import numpy as np

from accounting import Event, GaussianRelease, Unprotected
from attacks.gradients import Contribution, SeenGradient
from attacks.kinds import NothingToAttack
from dpfedvis.mechanisms import ClippedGradientPerturbation, PublishedFedDL
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import max_clip
from dpfedvis.runs.upload_reader import Recording


def gradients_of(recording: Recording, client: str, *, rounds: int | None = None) -> tuple[SeenGradient, ...]:
    """Return the gradients that one client uploaded, the first `rounds` of them if given.

    Uploads of the client's own landmarks after one local step are gradients as well: (Y − Y_p)/η. Where the server saw
    only a sum over clients, or landmarks after several local steps, there is no gradient of one client.
    """
    uploads = [each for each in recording.uploads if each.stage == "landmarks" and each.clients == (client,)]
    kept = [each for each in uploads if each.what in ("gradient", "landmarks")][:rounds]
    if not kept:
        raise NothingToAttack(f"the server saw no gradient of {client} by itself in this run")
    public, kernel = recording.public, contribution_of(recording).kernel
    seen = []
    for upload in kept:
        Y, values, sigma = recording.seen(upload), upload.values, noise_of(upload.events[0])
        if upload.what == "landmarks":
            if public.local_steps > 1:
                raise NothingToAttack(f"{public.local_steps} local steps lie between a gradient and what was uploaded")
            step = public.step_size
            full = (Y.astype("f8") - values) / step
            seen.append(SeenGradient.of_full(Y, full, kernel, estimator=public.estimator, sigma=sigma / step))
        elif isinstance(recording.mechanism, PublishedFedDL):
            seen.append(SeenGradient.of_full(Y, values, kernel, estimator="biased", sigma=sigma))
        else:
            seen.append(SeenGradient(Y.astype("f8"), values.astype("f8"), sigma))
    return tuple(seen)


def contribution_of(recording: Recording) -> Contribution:
    """Return what one record adds to a gradient in this run."""
    kernel, mechanism = recording.public.kernel, recording.mechanism
    if any(client.denominator is None for client in recording.clients):
        raise NothingToAttack("how many records a client has is private in this run, and gradients are their mean")
    if isinstance(mechanism, ClippedGradientPerturbation):
        return Contribution(kernel, mechanism.clip * max_clip(kernel, recording.public.landmarks))
    if isinstance(mechanism, PublishedFedDL) and len(kernel.gammas) > 1:
        raise NothingToAttack(
            f"which of {len(kernel.gammas)} bandwidths a published gradient belongs to is not uploaded: run it with one"
        )
    return Contribution(kernel)


def as_learned(recording: Recording, points: Array) -> Array:
    """Return points, shape (k, m), in the space that the landmarks were learned in.

    That is where gradients live. A private map's is a subspace that the server published: coordinates (x − c)A, as the
    clients themselves take them. Any other run learns in the space of the records.
    """
    if "axes" not in recording.published:
        return points
    coordinates: Array = (np.asarray(points, "f8") - recording.published["centre"]) @ recording.published["axes"]
    return coordinates


def noise_of(event: Event) -> float:
    """Standard deviation of the noise on an upload, as the ledger states it; 0 for none."""
    if isinstance(event, GaussianRelease):
        return event.sigma
    return (event.nominal_sigma or 0.0) if isinstance(event, Unprotected) else 0.0
