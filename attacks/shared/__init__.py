"""What all attacks share: the registry, gradients as the server sees them, and statistics of guesses."""
