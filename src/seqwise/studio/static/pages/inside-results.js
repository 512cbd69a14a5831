// Results of views: computed one after another, and kept for as long as the studio is open.
const MAX_RESULTS = 40;
const results = new Map();  // by request; the one that was used last is the last

// Runs are part of the key with the time of their last change.
const makeKey = (studio, name, request) => JSON.stringify([name, request, request.runs.map((id) => studio.rows.get(id)?.changed)]);

export function createQueue(studio) {
  let last = Promise.resolve();
  const get = (name, request) => results.get(makeKey(studio, name, request));

  // Returns the result of a function of the server; `signal` cancels it, also while it waits.
  async function compute(name, request, { signal, onEvent }) {
    const key = makeKey(studio, name, request);
    const known = results.get(key);
    if (known) return known;
    const call = last.then(() => {
      signal.throwIfAborted();
      return studio.call(name, request, { signal, onEvent });
    });
    last = call.catch(() => {});
    const result = await call;
    signal.throwIfAborted();
    results.delete(key);
    results.set(key, result);
    while (results.size > MAX_RESULTS) results.delete(results.keys().next().value);
    return result;
  }
  return { get, compute };
}

// Saves a file that the server has sent in base 64.
export function download({ name, media_type, content }) {
  const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
  const address = URL.createObjectURL(new Blob([bytes], { type: media_type }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
