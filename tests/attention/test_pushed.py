"""``push_to_hub`` of a debiased model, to a small server on this machine that answers as the Hub does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from tiny_models import LABELS, batch, build

import levelhead as lh


class Hub(BaseHTTPRequestHandler):
    """Takes a repository and one commit, and keeps the files by name."""

    files: dict[str, bytes]

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        if "/resolve/" in self.path:  # no card is there yet
            self.send_error(404)
            return
        self.answer({"id": "somebody/model", "sha": "0" * 40, "siblings": [], "xetEnabled": False})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        place = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        if self.path.endswith("/preupload/main"):
            asked = json.loads(body)["files"]
            self.answer(
                {"files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in asked]}
            )
        elif "/commit/" in self.path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self.answer({"commitUrl": f"{place}/somebody/model/commit/{'1' * 40}", "commitOid": "1" * 40})
        else:
            self.answer({"url": f"{place}/somebody/model", "name": "somebody/model"})


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, bytes]]:
    """One server for all tests: transformers remembers the first place that it has asked."""
    files: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {"files": files}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "ENDPOINT", place)
        template = place + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        patch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(huggingface_hub.hf_api.api, "endpoint", place)
        if hasattr(transformers.utils.hub, "_hf_api"):  # it keeps the place that another test asked
            patch.setattr(transformers.utils.hub, "_hf_api", None)
        yield files
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(server: dict[str, bytes]) -> dict[str, bytes]:
    server.clear()
    return server


@pytest.mark.parametrize("family", ["vit", "bert"])
def test_what_is_pushed_loads_with_levelhead_alone(family: str, hub: dict[str, bytes], tmp_path: Path) -> None:
    model = lh.attach(build(family)).train()
    model(**batch(family), labels=LABELS)
    model.push_to_hub("somebody/model", token="none", create_pr=False)
    assert {"config.json", "model.safetensors"} <= set(hub)
    config = json.loads(hub["config.json"])
    assert config["model_type"] == f"levelhead-{family}"
    assert config["levelhead"]["kind"] == "attach"
    for name, content in hub.items():
        (tmp_path / name).write_bytes(content)
    loaded = lh.from_pretrained(tmp_path)
    assert torch.allclose(loaded(**batch(family)).logits, model.eval()(**batch(family)).logits, atol=1e-6)


def test_a_folder_with_its_card_is_pushed_whole(hub: dict[str, bytes], tmp_path: Path) -> None:
    model = lh.attach(build("vit")).train()
    model(**batch("vit"), labels=LABELS)
    model.save_pretrained(tmp_path)
    text = lh.model_card(model, classes=["a", "b", "c"], task="Tells three kinds apart.", folder=tmp_path)
    huggingface_hub.HfApi(token="none").upload_folder(repo_id="somebody/model", folder_path=tmp_path)
    assert hub["README.md"].decode() == text
    assert {"README.md", "config.json", "model.safetensors"} <= set(hub)
