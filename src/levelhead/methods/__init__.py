"""Training methods, one paper a file. A new one is a file here and a line in :data:`METHODS`, or a user's own class."""

from levelhead.methods.base import Method
from levelhead.registry import Registry
from levelhead.training.stage import Stage

METHODS: Registry[Method] = Registry(
    "method",
    Method,
    "levelhead.methods",
    "summary",
    {
        "erm": "levelhead.methods.erm:ERM",
        "balanced": "levelhead.methods.balanced:Balanced",
        "dro": "levelhead.methods.dro:DRO",
        "arl": "levelhead.methods.arl:ARL",
        "kd": "levelhead.methods.kd:KD",
        "jtt": "levelhead.methods.jtt:JTT",
        "lff": "levelhead.methods.lff:LfF",
        "eiil": "levelhead.methods.eiil:EIIL",
        "afr": "levelhead.methods.afr:AFR",
        "xrm": "levelhead.methods.xrm:XRM",
        "spare": "levelhead.methods.spare:SPARE",
        "cnc": "levelhead.methods.cnc:CnC",
        "george": "levelhead.methods.george:GEORGE",
        "poe": "levelhead.methods.bias_only:PoE",
        "learned-mixin": "levelhead.methods.bias_only:LearnedMixin",
        "view-reweight": "levelhead.methods.bias_only:ViewReweight",
        "dam": "levelhead.methods.dam:DAM",
        "identities": "levelhead.methods.identities:Identities",
        "few-label": "levelhead.methods.few_label:FewLabel",
        "bmft": "levelhead.methods.bmft:BMFT",
        "dfr": "levelhead.methods.dfr:DFR",
        "decorrelation": "levelhead.methods.decorrelation:Decorrelation",
        "group-dro": "levelhead.methods.group_dro:GroupDRO",
        "tadet": "levelhead.methods.tadet:TADeT",
        "broad": "levelhead.methods.broad:BROAD",
        "ccl-k": "levelhead.methods.cclk:CCLK",
        "dsa": "levelhead.methods.dsa:DSA",
    },
)

__all__ = ["METHODS", "Method", "Stage"]
