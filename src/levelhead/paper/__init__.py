"""The paper's tables and figures: what it published, the runs that represent each, and the comparison of the two.

Lu, Wang, Wang, "Debiasing Attention Mechanism in Transformer without Demographics", ICLR 2024,
openreview.net/forum?id=jLIUfrAcMQ.
"""
