"""The theorems of the paper as functions: as printed, corrected, and our own bounds.

"Thm", "Lemma" and "Alg." are those of "Federated t-SNE and UMAP for Distributed Data Visualization" (AAAI 2025). Every
function returns a `Bound`, which says when it holds and whether it is vacuous. Errors in print, with counterexamples,
are in reports/theory/errata.md.
"""

from dpfedvis.evaluation.theory.bound import NORMS, Bound, Norm, trivial_error
from dpfedvis.evaluation.theory.certificate import (
    GramCertificate,
    entry_error,
    gram_certificate,
    kernel_certificate,
    noisy_rows,
    rounding,
)
from dpfedvis.evaluation.theory.convergence import Smoothness, dissimilarity, thm1_corrected, thm1_printed
from dpfedvis.evaluation.theory.empirical import (
    DistanceError,
    Distances,
    KernelError,
    Norms,
    NotConverged,
    centred,
    norms,
)
from dpfedvis.evaluation.theory.nystrom import Spread, cut_off_norms, mmd_bound, tail, thm2_corrected, thm2_printed
from dpfedvis.evaluation.theory.perturbation import lemma1_corrected, lemma1_printed, perturbation
from dpfedvis.evaluation.theory.privacy import (
    Constants,
    local_gradient,
    thm4_classical,
    thm4_corrected,
    thm4_printed,
    thm6_delta_corrected,
    thm6_delta_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
)
from dpfedvis.evaluation.theory.reconstruction import (
    Condition,
    condition,
    thm5_corrected,
    thm5_printed,
    with_noisy_records,
)

__all__ = [
    "NORMS",
    "Bound",
    "Condition",
    "Constants",
    "DistanceError",
    "Distances",
    "GramCertificate",
    "KernelError",
    "Norm",
    "Norms",
    "NotConverged",
    "Smoothness",
    "Spread",
    "centred",
    "condition",
    "cut_off_norms",
    "dissimilarity",
    "entry_error",
    "gram_certificate",
    "kernel_certificate",
    "lemma1_corrected",
    "lemma1_printed",
    "local_gradient",
    "mmd_bound",
    "noisy_rows",
    "norms",
    "perturbation",
    "rounding",
    "tail",
    "thm1_corrected",
    "thm1_printed",
    "thm2_corrected",
    "thm2_printed",
    "thm4_classical",
    "thm4_corrected",
    "thm4_printed",
    "thm5_corrected",
    "thm5_printed",
    "thm6_delta_corrected",
    "thm6_delta_printed",
    "thm6_sigma_corrected",
    "thm6_sigma_printed",
    "trivial_error",
    "with_noisy_records",
]
