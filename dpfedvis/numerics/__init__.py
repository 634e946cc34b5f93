"""Kernels, MMD, distances and neighbours: arrays in, arrays out; no clients, no privacy."""
