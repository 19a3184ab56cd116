// An app in TypeScript that uses every public name. What follows @ts-expect-error must not compile:
// a type that had become `any` would let it through.

import {
  batchToJson,
  browserStorage,
  Encoder,
  HubbubError,
  indexedDbStorage,
  makeBatch,
  makeRegistry,
  MetricError,
  OptionError,
  RandomnessError,
  StorageError,
  Telemetry,
  ValueError,
  type Batch,
  type Change,
  type DeliveryFailure,
  type KeptTexts,
  type Metric,
  type MetricSpending,
  type Options,
  type Preview,
  type Registry,
  type Report,
  type Spending,
  type Status,
} from "hubbub-client";
import { fileStorage } from "hubbub-client/node";

const options: Options = {
  registry: {},
  endpoint: "https://telemetry.example.com",
  storage: fileStorage("state"),
};
const telemetry = new Telemetry({ ...options, consent: true, batchSize: 10 });
const { record } = telemetry;
record("homepage", "news.example.org");
record("crashed", true);
record("seconds", 1.5);
record("crash-by-driver", { crash: "oom", driver: "nvidia 535", slow: true });
const settled: boolean = await telemetry.flush(1_000);
const status: Status = telemetry.status();
const failure: DeliveryFailure | null = status.lastError;
const lost: number | undefined = status.dropped["queue full"];
await telemetry.setConsent(false);
const spending: Spending = await telemetry.ledger();
const spent: number[] = spending.metrics.map((metric: MetricSpending) => metric.spent);
const preview: Preview = await telemetry.preview("homepage", "news.example.org");
const words: string = await telemetry.explain();
const farewell: string = await telemetry.forget();
await telemetry.close();

const texts = new Map<string, string>();
const simple: KeptTexts = {
  get: async (key) => texts.get(key),
  set: (key, text) => texts.set(key, text),
};
const atomic: KeptTexts = {
  update(key: string, change: Change) {
    const text = change(texts.get(key) ?? null);
    if (text === null) texts.delete(key);
    else if (text !== undefined) texts.set(key, text);
  },
};
for (const storage of [simple, atomic, browserStorage(), indexedDbStorage("app")])
  new Telemetry({ registry: {}, endpoint: new URL("https://example.com"), storage });

const registry: Readonly<Registry> = makeRegistry({});
const metric: Readonly<Metric> | undefined = registry.metrics.get("homepage");
if (metric) {
  const report: Report = new Encoder(metric, new Uint8Array(32)).encode("news.example.org");
  const batch: Readonly<Batch> = makeBatch([report]);
  const body: string = batchToJson(batch);
  // @ts-expect-error a report's bits are bytes
  const bits: string = report.bits;
}
const errors: (new (message: string) => HubbubError)[] = [
  MetricError,
  OptionError,
  RandomnessError,
  StorageError,
  ValueError,
];

// @ts-expect-error a storage is needed
new Telemetry({ registry: {}, endpoint: "/telemetry" });
// @ts-expect-error there is no such option
new Telemetry({ ...options, batchMilis: 5 });
// @ts-expect-error consent is no text
new Telemetry({ ...options, consent: "yes" });
// @ts-expect-error a metric is known by its name
record(5, "news.example.org");
// @ts-expect-error the value is missing
record("homepage");
// @ts-expect-error no type of metric has such values
record("homepage", ["news.example.org"]);
// @ts-expect-error no field of a joint metric has such values
record("crash-by-driver", { crash: { kind: "oom" }, driver: null });
// @ts-expect-error the result is promised
const early: boolean = telemetry.flush();
// @ts-expect-error there is no such counter
status.sent;
// @ts-expect-error what is set must be got again
const forgetful: KeptTexts = { set: () => {} };
// @ts-expect-error nothing can be kept
const empty: KeptTexts = {};
// @ts-expect-error a directory has a name
fileStorage();
