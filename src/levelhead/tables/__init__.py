"""Any table as codes and numbers: arrays, data frames, files, joined files; and the stores of their rows."""
