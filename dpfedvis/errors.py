"""The base of every error that this library raises on purpose."""


class DpfedvisError(ValueError):
    """Something that the caller can put right; the message says what and how.

    The command line prints the message as one sentence and exits with code 2.
    """
