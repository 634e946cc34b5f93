"""From the settings of a run to the estimator that runs it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from accounting.errors import InvalidParameter

if TYPE_CHECKING:
    from dpfedvis.estimators.base import FederatedEstimator
    from dpfedvis.mechanisms import Mechanism
    from dpfedvis.runs.settings import RunConfig


def mechanism_of(config: RunConfig) -> Mechanism:
    """Return the mechanism with its settings; one that it does not have is an error."""
    from dpfedvis.mechanisms import MECHANISMS

    if config.mechanism is None:
        raise InvalidParameter("mechanism", None, "chosen (see RunConfig.settled)")
    kind = MECHANISMS[config.mechanism]
    # Every mechanism is a frozen dataclass, which a Protocol cannot say.
    accepted = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: getattr(config, name) for name in ("beta", "clip", "frequencies", "batch")}
    for name, value in given.items():
        if value is not None and name not in accepted:
            raise InvalidParameter(name, value, f"left out: {config.mechanism!r} has no such setting")
    settings = {name: value for name, value in given.items() if value is not None}
    if config.mechanism == "input":
        if config.tau_x is None:
            raise InvalidParameter("tau_x", None, "given, as a public bound on the norm of records, for 'input'")
        settings["tau_x"] = config.tau_x
    # The settings of each kind are its own; those that it lacks were refused above.
    made: Mechanism = kind(trust=config.trust, **settings)  # type: ignore[call-arg]
    return made


def estimator_of(config: RunConfig) -> FederatedEstimator:
    """Return the estimator, ready to fit."""
    private_map = _private_map(config)
    common: dict[str, Any] = {
        "n_landmarks": config.landmarks,
        "mechanism": mechanism_of(config),
        "budget": config.budget,
        "release": config.chosen_release,
        "rounds": config.rounds,
        "random_state": config.seed,
        "release_share": config.release_share,
        "tau_x": config.tau_x,
        "rank": config.rank,
        "ridge": config.ridge,
        "feddl": _feddl(config),
    }
    if config.map == "clusters":
        from dpfedvis.estimators.clusters import FedSpectralClustering

        return FedSpectralClustering(
            n_clusters=config.clusters, affinity=config.affinity, gamma=config.affinity_gamma, **common
        )
    from dpfedvis.estimators.tsne_umap import FedTSNE, FedUMAP

    common |= {"private_map": private_map or None, "distances": config.distances}
    if config.map == "umap":
        return FedUMAP(n_neighbors=config.neighbours, **common)
    return FedTSNE(perplexity=config.perplexity, n_jobs=config.jobs, **common)


def _feddl(config: RunConfig) -> dict[str, Any]:
    """Further settings of `dpfedvis.federation.feddl.FedDL`."""
    feddl: dict[str, Any] = {
        "local_steps": config.local_steps,
        "bandwidth": config.gamma,
        "optimiser": config.optimiser,
        "step_size": config.step_size,
        "weights": config.weights,
        "sampling_rate": config.sampling_rate,
        "public_records": config.public_records,
        "bounds": config.bounds,
        "start": config.start,
        "estimator": config.mmd,
        "noise": config.noise,
    }
    if config.chosen_release == "none":
        # It learns scale and kernel itself, and names what else it was given.
        plain = {"local_steps": 1, "optimiser": "plain", "weights": "records", "estimator": "unbiased"}
        feddl = {key: value for key, value in feddl.items() if value not in (None, plain.get(key))}
        feddl.pop("bounds", None)
    return feddl


def _private_map(config: RunConfig) -> dict[str, Any]:
    """Return the given settings of the private map, for `private_map.Recipe`; raise if the run makes none."""
    given = {name: getattr(config, name) for name in ("density", "shares", "components", "placement")}
    given = {name: value for name, value in given.items() if value not in (None, False)}
    for name, value in given.items():
        if config.chosen_release != "none":
            raise InvalidParameter(name, value, f"left out with release={config.chosen_release!r}")
    if config.classes and not config.density:
        raise InvalidParameter("classes", config.classes, "left out without a density")
    return given | ({"classes": config.classes} if config.classes else {})
