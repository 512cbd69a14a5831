// The studio: chooses the page that the address names, and keeps it up to date.
//
// An address is #/PAGE?name=value. A page is a module with `show(element, parameters, studio)`, which draws into the
// element and may return { update(rows), change(parameters), close() }: `update` gets the rows of runs that have
// changed, `change` gets new parameters of the same page (without it, the page is shown again).
import { make } from "../../page/components/elements.js";
import { call, get, send, upload } from "./server.js";
import { createRows } from "./rows.js";

const PAGES = {
  runs: { title: "Runs", module: "./pages/runs.js" },
  new: { title: "New", module: "./pages/new.js" },
  run: { title: "Run", module: "./pages/run.js", isHidden: true },
  use: { title: "Use", module: "./pages/use.js" },
  inside: { title: "Inside", module: "./pages/inside.js" },
  compare: { title: "Compare", module: "./pages/compare.js" },
  lab: { title: "Lab", module: "./pages/lab.js" },
  vectors: { title: "Vectors", module: "./pages/vectors.js" },
};
const MESSAGE_SECONDS = 12;

const main = document.getElementById("main"), nav = document.querySelector("nav"), messages = document.querySelector(".messages");
const rows = createRows(document.querySelector(".connection"));
let current = null, numShown = 0;

// --- addresses
export const makeAddress = (page, parameters = {}) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  return "#/" + page + (query.size ? "?" + query : "");
};

function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "runs", parameters: new URLSearchParams(query) };
}

// --- messages: of errors, with how to fix them, and of what was done, perhaps with a button
function showMessage(content, { isError = false, action = null } = {}) {
  const close = make("button", { type: "button", class: "close", "aria-label": "Close the message" }, "×");
  const message = make("div", { class: "message" + (isError ? " is-error" : "") }, make("div", {}, ...[content].flat()), action, close);
  close.addEventListener("click", () => message.remove());
  messages.append(message);
  if (!isError) setTimeout(() => message.remove(), 1000 * MESSAGE_SECONDS);
  return message;
}

// The parts of an error: where, what, and how to fix it. One of JavaScript has a message only.
export function makeError(error) {
  const { problem = String(error.message ?? error), fix, file, line } = error;
  const place = file ? [make("code", {}, file + (line ? `, line ${line}` : "")), ": "] : [];
  return make("div", { class: "error", role: "alert" }, make("p", {}, ...place, problem), fix && make("p", { class: "fix" }, fix));
}

const showError = (error) => showMessage(makeError(error), { isError: true });

// --- pages
const studio = {
  rows,  // rows.get(id), rows.list(), rows.whenReady
  get, send, call, upload,
  scales: null,  // of the palette
  makeAddress, makeError, showMessage, showError,
  go: (page, parameters) => { location.hash = makeAddress(page, parameters); },
  reload: () => { showPage(); },  // shows the page again, such as after the first run has appeared
  // Replaces the parameters of the address without another entry in the history, and without showing the page again.
  keep: (page, parameters) => history.replaceState(null, "", makeAddress(page, parameters)),
};

// What had the focus, such as a link, may be gone with the former page.
const keepFocus = () => { if (document.activeElement === document.body) main.focus({ preventScroll: true }); };

function showMissing(page) {
  document.title = "No such page – Seqwise studio";
  main.replaceChildren(make("div", {}, make("h1", {}, "No such page"), make("p", { role: "alert" }, `The studio has no page “${page}”. Choose one of those above.`)));
}

async function showPage() {
  const { page, parameters } = readAddress(), number = ++numShown;
  if (current?.page === page && current.change) {
    await current.change(parameters);
    return keepFocus();
  }
  current?.close?.();
  if (current && current.page !== page) for (const error of messages.querySelectorAll(".is-error")) error.remove();
  current = null;
  for (const link of nav.children) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!Object.hasOwn(PAGES, page)) return showMissing(page);
  document.title = `${PAGES[page].title} – Seqwise studio`;
  try {
    const [module] = await Promise.all([import(PAGES[page].module), rows.whenReady]);
    if (number !== numShown) return;  // another page was chosen in the meantime
    const element = make("div", { class: "page-" + page });
    main.replaceChildren(element);
    scrollTo(0, 0);
    const shown = await module.show(element, parameters, studio);
    if (number !== numShown) return shown?.close?.();
    current = { page, ...shown };
    if (number > 1) keepFocus();
    document.documentElement.dataset.ready = page;
  } catch (error) {
    main.replaceChildren(make("div", { class: "page" }, make("h1", {}, PAGES[page].title), makeError(error)));
    if (!error.problem) console.error(error);
  }
}

nav.append(...Object.entries(PAGES).filter(([, { isHidden }]) => !isHidden)
  .map(([page, { title }]) => make("a", { href: makeAddress(page), "data-page": page }, title)));
rows.follow((changed) => current?.update?.(changed));
addEventListener("hashchange", showPage);
addEventListener("unhandledrejection", (event) => { showError(event.reason); event.preventDefault(); });
studio.scales = await get("/api/scales");
showPage();
