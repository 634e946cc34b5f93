"""Estimators: FedTSNE, FedUMAP and FedSpectralClustering, the scikit-learn face."""
