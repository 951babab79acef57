"""What holds for every test: the same examples on every run and machine, and one thread per worker."""

import pytest
import torch
from hypothesis import Phase, settings
from jaxtyping import config as jaxtyping_config

settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, max_examples=30, report_multiple_bugs=False
)
# For tests/mutants.py a failure is enough; the smallest one would take a minute to find.
settings.register_profile("mutants", settings.get_profile("tests"), phases=[Phase.generate])
settings.load_profile("tests")
torch.set_num_threads(1)  # the tensors are tiny, and xdist already fills the cores


@pytest.fixture
def as_a_learner_calls():
    """Outside the tests nobody checks types and shapes before we do: jaxtyping and beartype step back."""
    was = jaxtyping_config.jaxtyping_disable
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", was)
