"""What the page of a sweep says of all of them."""

from __future__ import annotations

from dpfedvis.experiments.sweeps.summary import CONFIDENCE

HOW = (
    f"Means over seeds with their {CONFIDENCE:.0%} t-intervals (n is the number of seeds; one seed has no interval). "
    "ε is that of one record, replaced by another, unless the heading says otherwise, and is taken from each run's "
    "ledger: of *everything* "
    "that left a client. Runs whose budget covers the landmarks alone have ε = ∞ end to end; they are drawn apart, by "
    "the ε of their landmarks. *local*: each client adds all the noise itself, and nobody is trusted. *aggregate*: the "
    "server is trusted to see nothing but sums over clients, which share the noise; ε is against that server and what "
    "it publishes. *central* lays out the pooled records themselves. *data-free* lays out public random "
    "points among which each client places its own records at home: nothing leaves, so that ε = 0. MMD and certificate "
    "are taken at one kernel for all runs on the same records; they judge the landmarks and not the map. CA: records "
    "whose class their neighbours in the map tell; NPA: neighbours that a record keeps in the map; NMI: of clusters of "
    "the map with the classes. All scores look at every record and every label, so "
    "that this page is for whoever holds the data."
)
TUNING = (
    "Every setting was run on the same records, and every run was scored against all records and labels. No ledger saw "
    "that. Whoever picks a setting from this page for a release on *these* records must count more than the ε of the "
    "run that is picked, for two reasons.",
    "*The runs.* To publish all of them, or one that was chosen by looking at what they released, costs at most the "
    "composition of all of them. Below it is for those with a finite ε; with one run whose ε is ∞ there is no bound. "
    "*The scores.* They read the records exactly and carry no noise, so that no ε "
    "on this page covers a choice made by them.",
    "There are cheaper ways than composition, if each run *together with its score* is differentially private: try "
    "settings drawn at random, a random number of times whose law has nothing to do with the data, and publish the "
    "best alone. For candidates of pure ε-DP (δ = 0) and a geometric number of tries that is 3ε-DP (Liu & Talwar 2019, "
    "Private selection from private candidates). For a truncated negative binomial number with parameter η > −1 it is "
    "(2 + η)ε, where η = 1 is the geometric one, and there are bounds of this kind for Rényi DP (Papernot & Steinke "
    "2022, Hyperparameter tuning with Rényi differential privacy). Runs here have δ > 0, so that the bounds for pure "
    "DP do not apply to them as they stand; and for a number of tries that is fixed, as in a grid, composition is what "
    "is sure. Choose on public data or on other records, or account for the choice.",
)
NO_LIMIT = (
    "The runs at ε = ∞ release an exact row for each record, from which the server lays out all of them. The private "
    "maps at finite ε, but for noisy rows and noisy records, have each client place its own among published points. So "
    "ε = ∞ is another way to a map, and not the limit of these curves: a part of the gap is what placement at home "
    "costs, and not noise."
)
MARKED = (
    "† marks what the seeds cannot tell from the data-free map (their intervals meet, or there is one seed and no "
    "interval), and what is worse than it."
)
PICKED = "The best of many settings, picked by the mean of few seeds, looks a little better than it is."
AGAINST = (
    "Under *aggregate* each client knows its own share of the noise. Against clients who take their shares off the "
    "sums, the same runs are worth at most this ε, and exactly this where all their noise is shared:"
)
SHARED = (
    "Under *aggregate* each client knows its own share of the noise. Against k of P clients who take their shares off "
    "the sums, μ is larger by √(P/(P − k)), and ε with it; the store does not say how many clients there were."
)
