"""Files of predictions as nobody should send them: unclosed quotation marks, odd encodings, damaged columns.

A result that is given counts every row of the file; all else ends in one sentence that tells none of its cells.
Damaged parquet files are read in a process of their own, as a library that ends the process would end the tests.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from shares import SECONDS, attempt, cases

from levelhead.auditing.door import audit_table
from levelhead.auditing.explain import explain
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.data.text_files import read_columns
from levelhead.tables.join import Joined

pytestmark = pytest.mark.slow

ROWS = 60
SECRET = "Jane Roe has diabetes"
NOTES = [
    "plain", '"', '"never closed', 'ends with "', '5" pipe', '"a" b', '""', '"quoted"', 'a\nb', '"\n"', ",", ";", "\t",
    SECRET, f'"{SECRET}', "x" * 140_000, "\u00e9", "\N{GRINNING FACE}", "=1+1", "",
]  # fmt: skip


def rows_of(draw: random.Random) -> list[list[str]]:
    """Return a header and rows: id, label, prediction, score, group and a note that nobody asks for."""
    comma = draw.random() < 0.3
    rows = [["id", "y", "yhat", "p", "g", "note"]]
    for row in range(ROWS):
        score = f"{draw.random():.{draw.choice([1, 3, 6])}f}"
        cells = [
            f"r{row}",
            str(row % 2),
            str(draw.randrange(2)),
            score.replace(".", ",") if comma else score,
            "ab"[row % 2],
        ]
        rows.append([*cells, draw.choice(NOTES) if draw.random() < 0.1 else "note"])
    return rows


def content_of(draw: random.Random) -> tuple[bytes, bool]:
    """Return a csv in some form, and whether it was written by the rules."""
    rows, separator = rows_of(draw), draw.choice([",", ";", "\t", "|"])
    quoted = draw.random() < 0.6
    if quoted:
        text = io.StringIO(newline="")
        quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=draw.choice(["\n", "\r\n"])).writerows(
            rows
        )
        written = text.getvalue()
    else:
        written = "\n".join(separator.join(row) for row in rows) + draw.choice(["", "\n"])
    encoding = draw.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
    return written.encode(encoding, "replace"), quoted


def tried(case: str, action: Callable[[], Any]) -> Any:
    """Return a result, or the text of a refusal, which tells none of the cells."""
    found, said = attempt(case, action)
    assert "Jane" not in said, case
    return said or found


def counted(result: Any) -> int:
    return sum(group.n for group in next(iter(result.by_attribute.values())).groups.values())


def test_no_row_of_a_csv_is_lost_without_a_word(tmp_path: Path) -> None:
    endings = {"result": 0, "refused": 0}
    for number in cases(120, 6):
        draw = random.Random(number)
        content, by_the_rules = content_of(draw)
        path = tmp_path / draw.choice(["p.csv", "p.csv.gz"])
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        other = tmp_path / "ids.csv"
        other.write_text("id,h\n" + "".join(f"r{row},{'cd'[row % 2]}\n" for row in range(ROWS)))
        where = f"case {number}"
        found = tried(
            where, lambda path=path: audit_table(path, label="y", prediction="yhat", groups=["g"], replicates=100)
        )
        if isinstance(found, str):
            assert not by_the_rules, (where, found)
            endings["refused"] += 1
        else:
            endings["result"] += 1
            lines = list(
                csv.reader(io.StringIO(decoded(content), newline=""), delimiter=delimiter_of(content), strict=True)
            )
            assert counted(found) == len(lines) - 1, where
        for action in (
            lambda path=path: explain(path, label="y", score="p", groups=["g"], replicates=100),
            lambda path=path: audit_table(path, label="p", prediction="y", groups=["g"], numbers=True),
            lambda path=path: postprocess(path, score="p", groups=["g"], label="y"),
            lambda path=path, other=other: audit_table(
                Joined(path, other, "id", ["y", "yhat", "h"]),
                label="y",
                prediction="yhat",
                groups=["h"],
                replicates=100,
            ),
            lambda path=path: read_columns(path, ["y", "g"]),
        ):
            again = tried(where, action)
            if isinstance(found, str) and "quotation mark" in found:
                assert isinstance(again, str), where
            if isinstance(again, dict) and not isinstance(found, str):
                assert len(again["y"]) == counted(found), where
        path.unlink()
    assert all(endings.values()), endings


def decoded(content: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe\0\0", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if content.startswith(mark):
            return content.decode(encoding)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252")


def delimiter_of(content: bytes) -> str:
    return max(",;\t|", key=decoded(content).splitlines()[0].count)


# ------------------------------------------------------------------------------------------------ damaged parquet

READ = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from levelhead.auditing.door import audit_table
    from levelhead.auditing.explain import explain
    from levelhead.tables.join import Joined
    from levelhead.types import LevelheadError
    for path in map(Path, sys.argv[1:]):
        for action in (
            lambda: str(audit_table(path, label="y", prediction="y", groups=["g", "d", "i", "b"], replicates=100)),
            lambda: str(audit_table(path, label="y", groups=["t"], score="f", threshold=0.5, replicates=100)),
            lambda: str(explain(path, label="y", score="p", groups=["g"], replicates=100)),
            lambda: Joined(path, Path(sys.argv[1]).with_name("whole.parquet"), "key", ["h"]).said,
        ):
            try:
                action()
            except LevelheadError as error:
                assert len(str(error)) <= 2000 and len(str(error).splitlines()) == 1
        print(path.name, flush=True)
    """
)


def test_damaged_columns_end_in_one_sentence(tmp_path: Path) -> None:
    draw = random.Random(0)
    table = pyarrow.table(
        {
            "y": [0, 1] * 30,
            "g": pyarrow.array(["a", "b", None] * 20),
            "d": pyarrow.array(["x", "yy"] * 30).dictionary_encode(),
            "i": pyarrow.array([1, None, 3] * 20, pyarrow.int64()),
            "b": pyarrow.array([b"\xff", b"a"] * 30),
            "t": pyarrow.array([0, 1] * 30, pyarrow.timestamp("us")),
            "p": [row / 60 for row in range(60)],
            "f": pyarrow.array([row / 60 for row in range(60)], pyarrow.float32()),
            "key": list(range(60)),
        }
    )
    pyarrow.parquet.write_table(
        pyarrow.table({"key": list(range(60)), "h": ["c", "d"] * 30}), tmp_path / "whole.parquet"
    )
    paths = []
    for number in cases(180):
        paths.append(path := tmp_path / f"{number}.parquet")
        options = {"compression": draw.choice(["none", "snappy", "zstd"]), "use_dictionary": draw.random() < 0.7}
        options |= {"data_page_version": draw.choice(["1.0", "2.0"]), "row_group_size": draw.choice([20, 1000])}
        pyarrow.parquet.write_table(table, path, **options)
        content = bytearray(path.read_bytes())
        footer = int.from_bytes(content[-8:-4], "little") + 8
        for _ in range(draw.choice([1, 1, 2, 5])):
            place = len(content) - 1 - draw.randrange(footer) if draw.random() < 0.5 else draw.randrange(len(content))
            content[place] = draw.choice([draw.randrange(256), content[place] ^ 1 << draw.randrange(8), 0, 255, 127])
        path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, timeout=SECONDS * len(paths)
    )
    last = (done.stdout.split() or ["none"])[-1]
    assert done.returncode == 0, (
        f"after {last}: {signal.Signals(-done.returncode) if done.returncode < 0 else done.stderr[-3000:]}"
    )
    assert len(done.stdout.split()) == len(paths)
