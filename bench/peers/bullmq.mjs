// BullMQ's side of the comparison: node bullmq.mjs WORKLOAD URL N BYTES prints one line of JSON.
import { Queue, Worker } from "bullmq";

const [load, url, count, bytes] = process.argv.slice(2);
const n = Number(count);
const u = new URL(url);
const connection = {
  host: u.hostname, port: Number(u.port), username: u.username || undefined,
  password: decodeURIComponent(u.password) || undefined, maxRetriesPerRequest: null,
};
const data = { data: "x".repeat(Number(bytes)) };
const opts = { removeOnComplete: true };
const queue = new Queue("peers", { connection });

const submit = () => queue.add("work", data, opts);

async function submitMany(n, size) {
  for (let i = 0; i < n; i += size) {
    const m = Math.min(size, n - i);
    await queue.addBulk(Array.from({ length: m }, () => ({ name: "work", data, opts })));
  }
}

// serve runs tasks until n of them have ended.
async function serve(n, submits) {
  let ended = 0;
  let done;
  const all = new Promise((resolve) => { done = resolve; });
  const worker = new Worker("peers", async () => {}, { connection, concurrency: 64 });
  worker.on("completed", () => { if (++ended === n) done(); });
  await Promise.all([all, submits]);
  await worker.close();
}

async function parallel(n, callers) {
  let next = 0;
  await Promise.all(Array.from({ length: callers }, async () => {
    while (next++ < n) await submit();
  }));
}

await submit();
await serve(1);
let start = process.hrtime.bigint();
switch (load) {
  case "bulk": await submitMany(n, 10_000); break;
  case "single": for (let i = 0; i < n; i++) await submit(); break;
  case "parallel": await parallel(n, 64); break;
  case "drain":
    await submitMany(n, 10_000);
    start = process.hrtime.bigint();
    await serve(n);
    break;
  case "both": await serve(n, submitMany(n, 1000)); break;
  default: throw new Error(`unknown workload ${load}`);
}
const seconds = Number(process.hrtime.bigint() - start) / 1e9;
await queue.obliterate({ force: true });
await queue.close();
console.log(JSON.stringify({ PerSecond: n / seconds }));
