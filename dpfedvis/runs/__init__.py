"""One run from settings to a folder on disk, and back."""
