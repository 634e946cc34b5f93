"""Arrays in, arrays out: kernels, MMD, distances, neighbours. Knows no clients and no privacy."""
