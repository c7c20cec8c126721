// The page without the hub tries again automatically: there may be nobody in front of the monitor.

const RETRY_MS = 3000;

async function retry() {
  const { ok } = await fetch("../", { signal: AbortSignal.timeout(RETRY_MS) }).catch(() => ({ ok: false }));
  if (ok) location.replace(`../${location.hash}`);
  else setTimeout(retry, RETRY_MS);
}

setTimeout(retry, RETRY_MS);
