"""Options of debiased attention: a mapping of the notebook's, and what becomes of ``auto``."""

from dataclasses import asdict, replace

import pytest

from levelhead.attention import DebiasConfig, DebiasedBlock, NotebookOptions
from levelhead.attention.config import Facts


def test_notebook_options_may_be_a_mapping():
    assert DebiasConfig(notebook={"queue": 3}) == DebiasConfig(notebook=NotebookOptions(queue=3))
    preset = DebiasConfig.preset("released-multinli", notebook={"queue": 0})
    assert preset.notebook.queue == 0
    assert preset.notebook.off_by_one
    assert replace(preset, notebook={"queue": 3}).notebook == NotebookOptions(queue=3)


@pytest.mark.parametrize(
    ("facts", "statistics", "readout", "absolute", "alone"),
    [
        (Facts("attach", "M", "first", images=True, length=5), "position", "first", True, True),
        (Facts("attach", "M", "first"), "cls_feature", "first", True, True),
        (Facts("attach", "M", "last", rotary=True), "cls_feature", "last", False, False),
        (Facts("attach", "M", "none"), "feature", "none", True, False),
        (Facts("attach", "M", "first", all_rows="it is odd"), "cls_feature", "first", True, False),
        (Facts("attach", "M", "first", wanted=False), "cls_feature", "first", True, False),
        (Facts("append", "M", "first", images=True, length=5), "position", "first", True, False),
        (Facts("append", "M", "first"), "cls_feature", "first", True, True),
        (Facts("append", "M", "last"), "cls_feature", "last", True, True),
    ],
)
def test_auto_is_decided_by_the_facts(facts, statistics, readout, absolute, alone):
    config = DebiasConfig().resolved(facts)
    found = (config.statistics, config.readout, config.absolute, config.readout_only)
    assert found == (statistics, readout, absolute, alone)
    assert config.resolved(facts) == config
    assert "auto" not in asdict(config).values()
    assert (DebiasConfig().why_all_rows(facts) is None) is alone
    spelled = DebiasConfig(statistics="feature", absolute=False, readout="none", readout_only=False)
    assert spelled.resolved(facts) == spelled


def test_readout_only_asked_for_by_name_holds_for_pictures_too():
    facts = Facts("append", "ViTModel", "first", images=True, length=5)
    assert DebiasConfig(readout_only=True).resolved(facts).readout_only is True


def test_a_block_of_its_own_resolves_its_options():
    block = DebiasedBlock(8, 2, DebiasConfig(statistics="cls_feature", readout="first"))
    assert block.attention.tap.debias.absolute is True
    assert block.attention.tap.debias.readout_only is True
    assert block.reads_one_row()
