"""What tests with several processes share: a process of theirs joins the others through gloo."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed


def start_ranks(work: Callable[[int, Path], None], processes: int, folder: Path) -> None:
    """Run ``work(rank, folder)`` in each of ``processes``, forked from one that has imported the libraries."""
    multiprocessing.set_forkserver_preload(["levelhead.training.lab", "levelhead.lm.klaad_training", "pytest"])
    torch.multiprocessing.start_processes(work, (folder,), processes, start_method="forkserver")


def join_ranks(rank: int, processes: int, folder: Path) -> None:
    """Become process ``rank`` of ``processes`` on this machine, which meet in ``folder``; warnings become errors."""
    count = str(processes)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ["OMP_NUM_THREADS"] = "1"
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=processes,
        timeout=datetime.timedelta(seconds=120),
    )
