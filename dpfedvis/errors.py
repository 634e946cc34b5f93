"""The base of every error that this library raises on purpose, and its warning."""


class NoSignalWarning(UserWarning):
    """A map that shows nothing but noise: what it looks like is no picture of the records."""


class DpfedvisError(ValueError):
    """Something that the caller can put right; the message says what and how.

    The command line prints the message as one sentence and exits with code 2.
    """


class NothingToShow(DpfedvisError):
    """A run that could show nothing but noise, whatever the data are; nothing was spent. Exit code 3."""
