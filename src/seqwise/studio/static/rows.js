// The rows of all runs and comparisons, kept up to date by server-sent events. The browser connects again by itself, and
// names the last event that it received.
export function createRows(status) {
  const rows = new Map(), listeners = [];
  let markReady;
  const whenReady = new Promise((resolve) => { markReady = resolve; });
  const source = new EventSource("/api/events");
  source.addEventListener("open", () => { status.textContent = ""; });
  source.addEventListener("error", () => { status.textContent = "not connected"; });
  source.addEventListener("message", ({ data }) => {
    const content = JSON.parse(data), changed = content.rows;
    if (content.is_complete) {
      const known = new Set(changed.map(({ id }) => id));
      for (const id of rows.keys()) if (!known.has(id)) changed.push({ id, is_gone: true });
    }
    for (const row of changed) {
      if (row.is_gone) rows.delete(row.id);
      else rows.set(row.id, row);
    }
    markReady();
    for (const listener of listeners) listener(changed);
  });
  return {
    whenReady,
    get: (id) => rows.get(id),
    list: () => [...rows.values()],
    listTop: () => [...rows.values()].filter(({ parent }) => !parent),  // without the trials of comparisons
    follow: (listener) => { listeners.push(listener); },
  };
}
