import pytest
from tiny_models import LABELS
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()


@pytest.fixture(params=["vit", "bert"])
def family(request):
    return request.param


@pytest.fixture
def labels():
    return LABELS.clone()
