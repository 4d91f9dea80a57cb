from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()
