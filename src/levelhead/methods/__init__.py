"""Training methods, one paper a file. A new one is a file here and a line in :data:`METHODS`, or a user's own class."""

from levelhead.methods.afr import AFR
from levelhead.methods.arl import ARL
from levelhead.methods.balanced import Balanced
from levelhead.methods.base import Method
from levelhead.methods.bias_only import LearnedMixin, PoE, ViewReweight
from levelhead.methods.bmft import BMFT
from levelhead.methods.broad import BROAD
from levelhead.methods.cclk import CCLK
from levelhead.methods.cnc import CnC
from levelhead.methods.dam import DAM
from levelhead.methods.decorrelation import Decorrelation
from levelhead.methods.dfr import DFR
from levelhead.methods.dro import DRO
from levelhead.methods.dsa import DSA
from levelhead.methods.eiil import EIIL
from levelhead.methods.erm import ERM
from levelhead.methods.few_label import FewLabel
from levelhead.methods.george import GEORGE
from levelhead.methods.group_dro import GroupDRO
from levelhead.methods.identities import Identities
from levelhead.methods.jtt import JTT
from levelhead.methods.kd import KD
from levelhead.methods.lff import LfF
from levelhead.methods.spare import SPARE
from levelhead.methods.tadet import TADeT
from levelhead.methods.xrm import XRM
from levelhead.registry import Registry
from levelhead.training.stage import Stage

METHODS: Registry[Method] = Registry(
    "method",
    Method,
    "levelhead.methods",
    "summary",
    {
        "erm": ERM,
        "balanced": Balanced,
        "dro": DRO,
        "arl": ARL,
        "kd": KD,
        "jtt": JTT,
        "lff": LfF,
        "eiil": EIIL,
        "afr": AFR,
        "xrm": XRM,
        "spare": SPARE,
        "cnc": CnC,
        "george": GEORGE,
        "poe": PoE,
        "learned-mixin": LearnedMixin,
        "view-reweight": ViewReweight,
        "dam": DAM,
        "identities": Identities,
        "few-label": FewLabel,
        "bmft": BMFT,
        "dfr": DFR,
        "decorrelation": Decorrelation,
        "group-dro": GroupDRO,
        "tadet": TADeT,
        "broad": BROAD,
        "ccl-k": CCLK,
        "dsa": DSA,
    },
)

__all__ = [
    "AFR",
    "ARL",
    "BMFT",
    "BROAD",
    "CCLK",
    "DAM",
    "DFR",
    "DRO",
    "DSA",
    "EIIL",
    "ERM",
    "GEORGE",
    "JTT",
    "KD",
    "METHODS",
    "SPARE",
    "XRM",
    "Balanced",
    "CnC",
    "Decorrelation",
    "FewLabel",
    "GroupDRO",
    "Identities",
    "LearnedMixin",
    "LfF",
    "Method",
    "PoE",
    "Stage",
    "TADeT",
    "ViewReweight",
]
