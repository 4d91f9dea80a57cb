"""A grid on a Ray cluster of two nodes gives the table of a local run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_grid import BASE

from levelhead.bench.grid import compare_methods, complete, make_cells, run_grid
from levelhead.bench.ray_cluster import connected
from levelhead.bench.tables import collect
from levelhead.types import ConfigError


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """Two nodes with one CPU each, on this machine."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's own 15 gives its workers next to no time beside anything else; its options are not in capitals.
    os.environ.update(RAY_worker_niceness="0")
    node = {"num_cpus": 1, "object_store_memory": 10**8}
    for left in (2, 1, 0):
        cluster = Cluster()
        try:
            cluster.add_node(**node, include_dashboard=False)
            cluster.add_node(**node)
            cluster.wait_for_nodes()
            break
        except Exception:  # Ray gives a node 30 seconds to start, which a busy machine may not give it
            cluster.shutdown()
            if not left:
                raise
    yield cluster.address
    cluster.shutdown()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_cluster_gives_the_table_of_a_local_run(two_nodes: str, tmp_path: Path) -> None:
    grid = compare_methods(BASE, ["erm", "balanced"], [0], {})
    for cell in make_cells(grid, tmp_path / "local"):  # in this process, because starting others takes seconds each
        complete(cell.experiment, cell.folder)
    with connected(two_nodes, tmp_path / "ray") as (launch, slots):
        assert slots == 2
        assert run_grid(make_cells(grid, tmp_path / "ray"), workers=slots, launch=launch) == []
    tables = []
    for folder in ("local", "ray"):
        (group,) = collect([tmp_path / folder], "test")
        value = group.compare("erm").to_dict()
        tables.append(json.dumps({key: value[key] for key in ("methods", "seeds", "settings", "data")}))
    assert tables[0] == tables[1]
    assert not (tmp_path / "ray" / ".shared").exists()


@pytest.mark.slow
@pytest.mark.long
def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(ConfigError, match=r"No Ray cluster answers at 127\.0\.0\.1:9"),
        connected("127.0.0.1:9", tmp_path),
    ):
        pass
    with pytest.raises(ConfigError, match="neither 'auto' nor an address"), connected("nonsense", tmp_path):
        pass
