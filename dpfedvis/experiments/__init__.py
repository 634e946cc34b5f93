"""Many runs: sweeps, the paper's tables, the demo."""
