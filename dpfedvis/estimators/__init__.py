"""The scikit-learn face, and the settings that it shares with the command line."""
