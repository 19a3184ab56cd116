"""JavaScript seals with the real @hpke/core, a real collector takes it, and Python opens it."""

import datetime as dt
import json
from pathlib import Path

from hubbub.client import Registry
from hubbub.collector.cli.sealing import open_
from hubbub.protocol.hpke import PrivateKey
from hubbub.simulations.experiments.processes import running_collector
from package.npm import run
from package.test_apps import REGISTRY
from service.posting import stored_records
from unit.javascript.node import NODE

SEALING_APP = """
import { readFileSync } from "node:fs";
import * as hpke from "@hpke/core";
import { sealedTo, Telemetry } from "./src/index.js";
import { fileStorage } from "./src/node-storage.js";
const { folder, registry, endpoint, key } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const sealed = sealedTo([key], hpke);
const telemetry = new Telemetry({ registry, endpoint, storage: fileStorage(folder), sealed });
for (let i = 0; i < 30; i++) telemetry.record("crashed", i % 2 === 0);
await telemetry.close(20_000);
console.log(telemetry.status().delivered);
"""
VECTORS_APP = """
import { readFileSync } from "node:fs";
import * as hpke from "@hpke/core";
import { fromHex, toHex } from "./src/bytes.js";
import { prefixed } from "./src/keyed.js";
const text = (words) => new TextEncoder().encode(words);
const suite = new hpke.CipherSuite({ kem: new hpke.DhkemX25519HkdfSha256(),
  kdf: new hpke.HkdfSha256(), aead: new hpke.Aes128Gcm() });
const opened = [];
for (const row of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const recipientKey = await suite.kem.importKey("raw", fromHex(row.private_key).buffer, false);
  const info = prefixed(text("hubbub/1/sealed"), fromHex(row.key_id), text(row.application));
  for (const record of row.records.map(fromHex)) {
    const enc = record.slice(8, 40).buffer;
    const sealed = record.slice(40).buffer;
    const plain = await suite.open({ recipientKey, enc, info: info.buffer }, sealed);
    opened.push(toHex(new Uint8Array(plain)));
  }
}
console.log(JSON.stringify(opened));
"""


def test_reports_sealed_in_javascript_are_opened_in_python(package, tmp_path):
    key = PrivateKey.generate(dt.datetime.now(dt.UTC).date() + dt.timedelta(days=2))
    metrics, config, private = (tmp_path / name for name in ("metrics.toml", "c.toml", "key"))
    entry = REGISTRY["metrics"]["crashed"] | {"expires": dt.date(2099, 12, 31)}
    lines = [f"{k} = {v if isinstance(v, dt.date) else json.dumps(v)}" for k, v in entry.items()]
    text = f'application = "{REGISTRY["application"]}"\n[metrics.crashed]\n' + "\n".join(lines)
    metrics.write_text(text, encoding="utf-8")
    config.write_text(f'[sealing_keys.main]\npublic = "{key.public}"\n', encoding="utf-8")
    private.write_text(str(key), encoding="utf-8")
    database, opened = tmp_path / "hubbub.db", tmp_path / "opened.db"
    with running_collector(metrics, database, ["--config", str(config)]) as collector:
        job = {"registry": REGISTRY, "endpoint": collector.url, "key": str(key.public)}
        (tmp_path / "job.json").write_text(json.dumps(job | {"folder": str(tmp_path / "state")}))
        (package.folder / "app.mjs").write_text(SEALING_APP, encoding="utf-8")
        assert run(NODE, "app.mjs", tmp_path / "job.json", folder=package.folder) == "30\n"
    options = ["--key", str(private), "--from", f"sqlite:///{database}"]
    options += ["--metrics", str(metrics), "--store", f"sqlite:///{opened}"]
    assert open_.main(options, standalone_mode=False) is None
    metric = Registry.load(metrics)["crashed"]
    assert stored_records(database, metric) == []
    assert len(stored_records(opened, metric)) == 30


def test_records_of_the_vectors_are_opened_in_javascript(package):
    vectors = Path(__file__).parents[2] / "docs" / "protocol" / "vectors" / "sealed.json"
    (package.folder / "vectors.mjs").write_text(VECTORS_APP, encoding="utf-8")
    opened = json.loads(run(NODE, "vectors.mjs", vectors, folder=package.folder))
    rows = json.loads(vectors.read_text(encoding="utf-8"))
    assert opened == [payload for row in rows for payload in row["payloads"]]
