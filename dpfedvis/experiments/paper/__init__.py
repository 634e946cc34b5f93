"""The paper's tables and figures on top of the sweep store. `dpfedvis reproduce` is the command.

"The paper" is "Federated t-SNE and UMAP for Distributed Data Visualization" (AAAI 2025).
"""
