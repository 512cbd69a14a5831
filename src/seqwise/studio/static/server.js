// Requests to the server. An error has `problem` and `fix`, perhaps also `file` and `line`.
const HEADERS = { "X-Seqwise": "1" };

async function check(response) {
  if (response.ok) return response;
  const text = await response.text();
  let details = { problem: text.trim() || `the server answers with status ${response.status}.` };
  try { details = { ...details, ...JSON.parse(text) }; } catch { /* it is a text */ }
  throw Object.assign(new Error(details.problem), details);
}

async function request(address, options) {
  try {
    return await check(await fetch(address, options));
  } catch (error) {
    if (error.name === "TypeError") throw Object.assign(error, { problem: "the studio does not answer.", fix: "Start it again: seqwise studio" });
    throw error;
  }
}

// Returns what is at an address; values of parameters may be lists.
export async function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) for (const one of [value].flat()) if (one !== null && one !== undefined) query.append(name, one);
  return (await request(path + (query.size ? "?" + query : ""), options)).json();
}

// Sends an object; returns the answer.
export const send = async (path, values = {}, options = {}) =>
  (await request(path, { method: "POST", headers: { ...HEADERS, "Content-Type": "application/json" }, body: JSON.stringify(values), ...options })).json();

// Sends a file; returns its id.
export const upload = async (file) =>
  (await (await request("/api/uploads?" + new URLSearchParams({ name: file.name }), { method: "POST", headers: HEADERS, body: file })).json()).id;

// Computes something in a worker process; returns the result. `onEvent` gets { progress: [done, total] } and { emitted: … }.
// `signal`, of an AbortController, cancels the computation.
export async function call(name, values, { onEvent = () => {}, signal } = {}) {
  const options = { method: "POST", headers: { ...HEADERS, "Content-Type": "application/json" }, body: JSON.stringify(values), signal };
  const reader = (await request("/api/call/" + name, options)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw Object.assign(new Error("the connection was lost."), { problem: "the connection was lost.", fix: "Try again." });
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const event = JSON.parse(line);
      if (event.error) throw Object.assign(new Error(event.error.problem), event.error);
      if ("result" in event) return event.result;
      onEvent(event);
    }
  }
}
