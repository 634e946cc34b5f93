"""Auditing: lower bounds on ε from games that are played against the running code; see `attacks.audit`."""
