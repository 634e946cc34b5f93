"""What a page says of ε in words: whom it is against, and never less than it is."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import norm

from accounting import gaussian_mu
from dpfedvis.reporting import page_words
from dpfedvis.reporting.run_facts import RunFacts


def under(facts: RunFacts, *trusts: str) -> RunFacts:
    """The run, had its releases been under these trust models in turn."""
    statement = copy.deepcopy(dict(facts.statement))
    protected = [line for line in statement["releases"] if line["sigma"] is not None]
    for number, line in enumerate(protected):
        line["trust"] = trusts[number % len(trusts)]
    return replace(facts, statement=statement)


@pytest.mark.parametrize(
    ("trusts", "seen", "against"),
    [
        (("local",), "sees all that left the clients, and", "whoever sees the uploads"),
        (("aggregate",), "sees the sums over clients, and", "a server that sees sums over clients"),
        # As with noisy rows beside shared noise for the landmarks: the server sees both.
        (("local", "aggregate"), "sees the sums over clients and what left with all its noise, and",
         "a server that sees sums over clients and what left with all its noise"),
        (("central",), "sees what the server publishes, and", "whoever sees what a trusted server publishes"),
        (("central", "aggregate"), "sees what the server publishes, and",
         "whoever sees what a trusted server publishes"),
    ],
)  # fmt: skip
def test_the_adversary_is_the_one_that_the_trust_allows(
    trusts: tuple[str, ...], seen: str, against: str, private: Path
) -> None:
    facts = under(RunFacts.read(private), *trusts)
    words = str(page_words.what_epsilon_means(facts))
    assert seen in words
    assert page_words.whom_it_is_against(facts.statement) == f"against {against}"
    # One client's own upload carries a part of the noise only, or none of it.
    assert ("all that left the clients" in words) == (set(trusts) == {"local"})


def test_a_page_says_whom_epsilon_is_against_and_what_it_is_against_a_client(private: Path) -> None:
    facts = RunFacts.read(private)
    page = (private / "report.html").read_text()
    assert "against a server that sees sums over clients" in page
    assert f"off the sums, ε = {float(facts.statement['epsilon_against_a_client']):.4g}"[:-1] in page
    for nothing in (None, "inf"):  # no shared noise, or no guarantee at all
        assert page_words.what_a_client_can_do({**facts.statement, "epsilon_against_a_client": nothing}) is None


def test_the_share_of_right_guesses_is_rounded_up(private: Path) -> None:
    facts = RunFacts.read(private)
    exactly = norm.cdf(gaussian_mu(4.0, 1e-5) / 2)
    words = str(page_words.what_epsilon_means(facts))
    said = float(words.split("at most ")[1].split(" of 100")[0])
    assert math.ceil(1000 * exactly - 1e-6) / 10 == pytest.approx(said)
    assert said >= 100 * facts.guess - 1e-6
