"""Every method as tests train it: on fifty easy rows, in a few epochs."""

from typing import Any

from levelhead.attention import DebiasConfig
from levelhead.methods import METHODS, Method
from levelhead.methods.dam import DAM

# Every method as it comes or with options that suit few rows, others that take another path, and debiased attention.
OPTIONS: dict[str, dict[str, Any]] = {
    "xrm": {"single_part": "keep"},  # nothing in these pictures contradicts the rest
    "balanced by sampling": {"by": "sampling"},
    "dro dual": {"variant": "dual"},
    "dro cvar": {"variant": "cvar"},
    "arl without the label": {"sees_label": False},
    "jtt weights": {"repeat": "weights"},
    "lff exact": {"form": "exact"},
    "eiil irm": {"second": "irm", "penalty": 10.0},
    "tadet scalar": {"means": "scalar", "balanced": True},
    "identities": {"fewest_people": 20},
    "few-label": {"rows": 20},
    "bmft": {"rows": 20},
    "dfr": {"smallest_group": 2},
    "dsa": {"bias_epochs": 1, "attack_steps": 3},
}
KINDS: dict[str, Method] = {
    name: METHODS[name.split()[0]](**OPTIONS.get(name, {})) for name in dict.fromkeys([*METHODS, *OPTIONS])
}
BASES = ("dro", "jtt", "lff", "tadet", "dfr", "learned-mixin", "dsa", "cnc", "xrm")
KINDS |= {f"dam+{name}": DAM(base=KINDS[name]) for name in BASES}
KINDS["dam sum"] = DAM(DebiasConfig.preset("paper", reduction="sum"))
