"""What noise for whole clients leaves of the data, in plain words."""

from __future__ import annotations

import math


def client_level_remark(*, clients: int, features: int, moments: float, second_moments: float, local: bool) -> str:
    """Hold the noise for whole clients against the largest signal that there could be.

    A client's upload is a mean over its records, so that it is as long as one record's part at most: √2 for the
    moments (`accounting.sensitivity.moments`), and 1, also in the spectral norm, for the second moments. Noise of
    standard deviation s in each of m + 1 values has norm √(m + 1)·s, and as a symmetric matrix eigenvalues up to
    √(2m)·s (Wigner; see `dpfedvis.federation.private_map.subspace.principal_subspace`). Where the noise is
    the larger, no data could have been seen.

    Parameters
    ----------
    clients : int
        P, public.
    features : int
        m.
    moments, second_moments : float
        Standard deviation of the noise in each value of the clients' average.
    local : bool
        Whether each client adds the whole noise itself: the noise in the average then falls as 1/√P, else as 1/P.
    """
    centre = math.sqrt(features + 1) * moments / math.sqrt(2)
    axes = math.sqrt(2 * features) * second_moments
    worst = max(centre, axes)
    enough = max(math.ceil(clients * (worst**2 if local else worst)), 1)
    said = (
        f"The unit is a whole client, and there {'is' if clients == 1 else 'are'} {clients}: the noise hides all that "
        f"one client adds to the average. In the mean of the records it is {centre:.3g} times, and in their "
        f"principal directions {axes:.3g} times, the largest signal that any data could give."
    )
    if worst >= 1:
        return (
            f"{said} **So the map is mostly noise**: for noise and largest signal to be equal it takes about {enough} "
            "clients, and for a map that means something several times as many."
        )
    return f"{said} Data that do not fill their bounds give less than the largest signal."
