// Which rows are shown, and in which order.
const KEYS = ["task", "model", "data", "state", "tag", "name", "kind", "note"];

const getTexts = (row, key) => key === "tag" ? row.tags : [String(row[key] ?? "")];

// A search is words, and KEY:VALUE for one column; quotes keep words together; a minus excludes.
export function parseSearch(text) {
  return [...text.matchAll(/(-?)(?:(\w+):)?(?:"([^"]*)"|(\S+))/g)].map(([whole, minus, key, quoted, word]) => {
    const isKey = KEYS.includes(key);
    const value = isKey || !key ? quoted ?? word : whole.slice(minus.length);
    return { isExcluded: minus === "-", key: isKey ? key : null, value: value.toLowerCase() };
  });
}

function matchesTerm(row, { key, value }) {
  const texts = key ? getTexts(row, key) : [row.id, ...KEYS.flatMap((one) => getTexts(row, one))];
  return texts.some((text) => text.toLowerCase().includes(value));
}

export const matches = (row, terms) => terms.every((term) => matchesTerm(row, term) !== term.isExcluded);

// --- order
const STATES = ["running", "failed", "stopped", "finished"];
// Column → value to compare; the first click sorts numbers from the largest, words from the first.
export const COLUMNS = {
  name: { title: "Name", get: (row) => row.name },
  task: { title: "Task", get: (row) => row.task },
  model: { title: "Model", get: (row) => row.model },
  data: { title: "Data", get: (row) => row.data },
  state: { title: "State", get: (row) => STATES.indexOf(row.state) },
  metric: { title: "Metric", get: (row) => row.metric === null || row.value === null ? null : [row.metric, row.higher_is_better ? -row.value : row.value] },
  step: { title: "Steps", get: (row) => row.step, isDescending: true },
  seconds: { title: "Time", get: (row) => row.seconds, isDescending: true },
  bytes: { title: "Size", get: (row) => row.bytes, isDescending: true },
  // Runs that train change every second: they must not change places.
  changed: { title: "Changed", get: (row) => row.state === "running" ? Number.MAX_VALUE : row.changed, isDescending: true },
};

function compare(a, b) {
  if (Array.isArray(a)) return compare(a[0], b[0]) || compare(a[1], b[1]);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

// Rows without a value are last in both directions.
export function sortRows(rows, { column, isDescending }) {
  const { get } = COLUMNS[column], sign = isDescending ? -1 : 1;
  const isEmpty = (value) => value === null || value === undefined || value === "";
  return rows.map((row) => [row, get(row)])
    .sort(([a, x], [b, y]) => isEmpty(x) - isEmpty(y) || (isEmpty(x) ? 0 : sign * compare(x, y)) || compare(a.id, b.id)).map(([row]) => row);
}

// The rows to show: comparisons with those of their trials that are unfolded, or that a search finds.
export function arrangeRows(all, { search, sort, open }) {
  const terms = parseSearch(search), trials = new Map();
  for (const row of all) if (row.parent) trials.set(row.parent, [...trials.get(row.parent) ?? [], row]);
  const shown = [];
  for (const row of sortRows(all.filter(({ parent }) => !parent), sort)) {
    const own = trials.get(row.id) ?? [], isFound = matches(row, terms);
    const found = isFound || terms.length === 0 ? own : own.filter((trial) => matches(trial, terms));
    if (!isFound && found.length === 0) continue;
    const isOpen = open.has(row.id) || !isFound;
    shown.push({ row, level: 1, numTrials: own.length, isOpen });
    if (isOpen) shown.push(...sortRows(found, sort).map((trial) => ({ row: trial, level: 2, numTrials: 0, isOpen: false })));
  }
  return shown;
}
