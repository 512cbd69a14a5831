// The rows of all runs and comparisons, kept up to date by server-sent events. The browser connects again by itself, and
// names the last event that it received. While the page is hidden there is no connection, so that neither the page nor the
// server uses time that a training could use.

// Waits until the page is visible.
export const whenVisible = async () => {
  while (document.hidden) await new Promise((resolve) => { document.addEventListener("visibilitychange", resolve, { once: true }); });
};

export function createRows(status) {
  const rows = new Map(), listeners = [];
  let markReady, source = null, last = "";
  const whenReady = new Promise((resolve) => { markReady = resolve; });
  function receive({ data, lastEventId }) {
    const content = JSON.parse(data), changed = content.rows;
    last = lastEventId;
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
  }
  function connect() {
    source = new EventSource("/api/events?" + new URLSearchParams({ last }));
    source.addEventListener("open", () => { status.textContent = ""; });
    source.addEventListener("error", () => { status.textContent = "not connected"; });
    source.addEventListener("message", receive);
  }
  connect();
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (!document.hidden) connect();
  });
  return {
    whenReady,
    get: (id) => rows.get(id),
    list: () => [...rows.values()],
    listTop: () => [...rows.values()].filter(({ parent }) => !parent),  // without the trials of comparisons
    follow: (listener) => { listeners.push(listener); },
  };
}
