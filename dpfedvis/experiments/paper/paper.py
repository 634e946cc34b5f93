"""The paper's numbers, as printed: mean ± standard deviation, by table, row and column.

"Federated t-SNE and UMAP for Distributed Data Visualization" (AAAI 2025), Tables 1 to 5, labelled `table-mnist`,
`table-fmnist`, `tab:nonIID-k`, `tab:IID-k` and `SpeClust` in its source. The figures come without numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpfedvis.evaluation.metrics import METRICS


@dataclass(frozen=True)
class Number:
    """A number of the paper.

    Parameters
    ----------
    mean, sd : float
    text : str
        As printed.
    """

    mean: float
    sd: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "0.9618±0.0015"."""
        mean, sd = text.split("±")
        return cls(float(mean), float(sd), f"{mean} ± {sd}")


@dataclass(frozen=True)
class Printed:
    """A table of the paper.

    Parameters
    ----------
    number : int
    label : str
        In the paper's source.
    caption : str
    columns : tuple of str
    rows : dict of (str, str) to tuple of Number
        (group of rows, score) → one number a column.
    """

    number: int
    label: str
    caption: str
    columns: tuple[str, ...]
    rows: dict[tuple[str, str], tuple[Number, ...]]


# Key of a metric → its name in the paper's tables.
SCORES = {metric.key: metric.paper for metric in METRICS.values() if metric.paper}
SETTINGS = ("central", "IID", "IID +", "non-IID", "non-IID +")


def _rows(group: str, text: str) -> dict[tuple[str, str], tuple[Number, ...]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {(group, line[0]): tuple(map(Number.parse, line[1:])) for line in lines}


TABLE1 = Printed(
    1,
    "table-mnist",
    "Performance (mean±std) of dimensionality reduction on MNIST",
    SETTINGS,
    _rows(
        "t-SNE",
        """
        ca_1 0.9618±0.0015 0.9400±0.0017 0.9364±0.0020 0.9412±0.0021 0.9189±0.0030
        ca_10 0.9656±0.0017 0.9477±0.0017 0.9443±0.0012 0.9483±0.0019 0.9307±0.0026
        ca_50 0.9609±0.0015 0.9401±0.0022 0.9354±0.0022 0.9406±0.0020 0.9209±0.0035
        npa_1 0.4176±0.0016 0.2728±0.0022 0.2543±0.0016 0.2729±0.0022 0.1928±0.0019
        npa_10 0.3905±0.0005 0.3373±0.0007 0.3263±0.0005 0.3375±0.0013 0.2827±0.0010
        npa_50 0.3441±0.0007 0.3301±0.0007 0.3258±0.0007 0.3305±0.0006 0.3030±0.0012
        nmi 0.7747±0.0243 0.7534±0.0202 0.7471±0.0073 0.7399±0.0109 0.7025±0.0149
        silhouette 0.4226±0.0082 0.4407±0.0103 0.4478±0.0066 0.4321±0.0058 0.4441±0.0045
        """,
    )
    | _rows(
        "UMAP",
        """
        ca_1 0.9322±0.0053 0.9066±0.0031 0.9007±0.0034 0.9064±0.0026 0.8730±0.0041
        ca_10 0.9613±0.0048 0.9445±0.0018 0.9416±0.0023 0.9449±0.0022 0.9224±0.0036
        ca_50 0.9602±0.0049 0.9432±0.0020 0.9400±0.0025 0.9441±0.0022 0.9219±0.0037
        npa_1 0.0308±0.0009 0.0293±0.0007 0.0277±0.0008 0.0298±0.0011 0.0218±0.0009
        npa_10 0.1227±0.0010 0.1133±0.0008 0.1088±0.0009 0.1131±0.0012 0.0914±0.0006
        npa_50 0.2226±0.0015 0.2099±0.0011 0.2053±0.0011 0.2095±0.0013 0.1860±0.0013
        nmi 0.8285±0.0150 0.7844±0.0208 0.7812±0.0153 0.7919±0.0217 0.7368±0.0194
        silhouette 0.6118±0.0207 0.5812±0.0261 0.5746±0.0229 0.5889±0.0248 0.5422±0.0173
        """,
    ),
)

TABLE2 = Printed(
    2,
    "table-fmnist",
    "Performance (mean±std) of dimensionality reduction on Fashion-MNIST",
    SETTINGS,
    _rows(
        "t-SNE",
        """
        ca_1 0.8112±0.0049 0.7473±0.0029 0.7198±0.0041 0.7453±0.0044 0.6669±0.0044
        ca_10 0.8260±0.0039 0.7892±0.0030 0.7706±0.0034 0.7898±0.0039 0.7280±0.0048
        ca_50 0.8064±0.0041 0.7754±0.0033 0.7631±0.0037 0.7760±0.0045 0.7280±0.0043
        npa_1 0.3518±0.0018 0.1251±0.0021 0.0718±0.0013 0.1275±0.0017 0.0274±0.0006
        npa_10 0.3635±0.0007 0.2551±0.0010 0.1954±0.0011 0.2571±0.0011 0.1090±0.0010
        npa_50 0.3710±0.0003 0.3363±0.0006 0.3004±0.0006 0.3369±0.0008 0.2204±0.0017
        nmi 0.5787±0.0212 0.5780±0.0154 0.5733±0.0149 0.5778±0.0044 0.5162±0.0129
        silhouette 0.4049±0.0101 0.4382±0.0070 0.4638±0.0147 0.4389±0.0085 0.4564±0.0111
        """,
    )
    | _rows(
        "UMAP",
        """
        ca_1 0.7146±0.0029 0.6756±0.0036 0.6587±0.0055 0.6766±0.0043 0.6110±0.0037
        ca_10 0.7734±0.0039 0.7413±0.0045 0.7287±0.0041 0.7437±0.0030 0.6875±0.0041
        ca_50 0.7781±0.0039 0.7491±0.0052 0.7383±0.0039 0.7501±0.0040 0.7006±0.0033
        npa_1 0.0356±0.0012 0.0218±0.0011 0.0156±0.0009 0.0223±0.0011 0.0071±0.0004
        npa_10 0.1401±0.0013 0.1002±0.0015 0.0799±0.0012 0.1020±0.0010 0.0423±0.0007
        npa_50 0.2518±0.0018 0.2152±0.0028 0.1907±0.0018 0.2167±0.0022 0.1226±0.0015
        nmi 0.6187±0.0127 0.5915±0.0112 0.5755±0.0090 0.5877±0.0181 0.5191±0.0132
        silhouette 0.5304±0.0286 0.5448±0.0264 0.5476±0.0176 0.5338±0.0252 0.5322±0.0191
        """,
    ),
)

TABLE3 = Printed(
    3,
    "tab:nonIID-k",
    "Performance (mean±std) of Fed-tSNE and Fed-tSNE+ on non-IID data for different values of the number of clients k",
    ("k = 5", "k = 10"),
    _rows("Fed-tSNE", "nmi 0.741±0.011 0.740±0.011\nnpa_10 0.336±0.001 0.338±0.001")
    | _rows("Fed-tSNE+", "nmi 0.709±0.026 0.702±0.015\nnpa_10 0.286±0.001 0.283±0.001"),
)

TABLE4 = Printed(
    4,
    "tab:IID-k",
    "Performance (mean±std) of Fed-tSNE and Fed-tSNE+ on IID data for different values of the number of clients k",
    ("k = 5", "k = 10", "k = 20", "k = 50", "k = 100"),
    _rows(
        "Fed-tSNE",
        """
        nmi 0.747±0.016 0.753±0.020 0.745±0.009 0.747±0.014 0.749±0.015
        npa_10 0.337±0.001 0.337±0.001 0.337±0.001 0.338±0.001 0.338±0.001
        """,
    )
    | _rows(
        "Fed-tSNE+",
        """
        nmi 0.740±0.013 0.747±0.007 0.742±0.019 0.741±0.018 0.741±0.012
        npa_10 0.323±0.001 0.326±0.001 0.329±0.001 0.332±0.001 0.333±0.001
        """,
    ),
)

TABLE5 = Printed(
    5,
    "SpeClust",
    "Performance (mean±std) of spectral clustering",
    SETTINGS,
    _rows(
        "MNIST",
        """
        nmi 0.5415±0.0009 0.5240±0.0038 0.5220±0.0052 0.5235±0.0051 0.5025±0.0068
        ari 0.3837±0.0008 0.3815±0.0076 0.3807±0.0088 0.3806±0.1123 0.3829±0.0102
        """,
    )
    | _rows(
        "COIL-20",
        """
        nmi 0.8885±0.0016 0.8425±0.0218 0.8333±0.0173 0.8339±0.0216 0.8215±0.0163
        ari 0.6066±0.0012 0.5113±0.0557 0.4793±0.0426 0.4895±0.0639 0.4551±0.0322
        """,
    )
    | _rows(
        "Mice-Protein",
        """
        nmi 0.3241±0.0063 0.3233±0.0121 0.3220±0.0143 0.3222±0.0190 0.3198±0.0100
        ari 0.1837±0.0037 0.1827±0.0033 0.1802±0.0154 0.1809±0.0024 0.1783±0.0016
        """,
    ),
)
