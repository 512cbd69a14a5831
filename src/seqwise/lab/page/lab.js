// The page of the lab: chapters, statements to guess, the score. The data are in a script element of the page.
import { make, makeButton, makeChoice } from "../../page/components/elements.js";
import { formatPlural } from "../../page/components/numbers.js";
import { createDrawingQueue } from "./drawing-queue.js";
import { createGuesses } from "./guesses.js";
import { makeIndex } from "./index-links.js";
import { exposeLive } from "./live/index.js";
import { makeStatement } from "./statements.js";
import { getName } from "./verdicts.js";

const { title, total, chapters: allChapters, scales, styles } = JSON.parse(document.getElementById("data").textContent);
const chapters = allChapters.filter(({ records }) => records.length), records = chapters.flatMap((chapter) => chapter.records);
const ids = records.map(({ id }) => id), guesses = createGuesses(records);
const printMode = matchMedia("print");
const LEAD = "Each statement below comes from course notes and is tested by an experiment. Decide whether it is true, false, or depends on a condition; " +
  "your guess reveals the verdict with its evidence, the figures, and a command to run it yourself.";

const queue = createDrawingQueue();
const statements = records.map((record) => makeStatement(record, { guesses, scales, styles, watch: queue.watch }));
let isRevealed = false, filter = "all";

// --- the head
function makeHead() {
  const reveal = make("input", { type: "checkbox", role: "switch", id: "reveal" });
  reveal.addEventListener("change", () => { isRevealed = reveal.checked; filter = isRevealed ? filter : "all"; update(); queue.drawRest(); });
  const options = [["all", "all"], ...["holds", "holds if", "refuted"].map((verdict) => [verdict, getName(verdict).toLowerCase()])];
  const choice = makeChoice("Show", options, filter, (value) => { filter = value; update(); });
  const status = make("p", { class: "score", role: "status" }), forget = makeButton("Start again", () => guesses.clear(), { class: "small", "aria-label": "Forget my guesses" });
  document.querySelector("header").append(make("p", { class: "label" }, "Seqwise"), make("h1", {}, title), make("p", { class: "lead" }, LEAD),
    ...records.length < total ? [make("p", { class: "hint", id: "count" }, `This page has ${records.length} of the ${total} statements.`)] : [],
    make("div", { class: "switches" }, status, forget, make("label", { class: "switch" }, reveal, "Show all verdicts"), choice));
  return () => {
    const made = guesses.countMade(ids);
    status.textContent = made ? `${guesses.countRight(ids)} of ${made} ${made === 1 ? "guess" : "guesses"} right, ${ids.length - made} left` : "No guess yet";
    forget.hidden = made === 0;
    choice.hidden = !isRevealed;
    if (!isRevealed) choice.querySelectorAll("button").forEach((button, at) => button.setAttribute("aria-pressed", String(at === 0)));
  };
}

// --- chapters
function makeContents() {
  document.documentElement.classList.toggle("has-one-chapter", chapters.length < 2);
  const links = chapters.map(({ letter, title: name, records: own }) => {
    const score = make("small", {}), link = make("a", { href: "#chapter-" + letter, title: name }, make("b", {}, letter), " ", make("span", {}, name), " ", score);
    return { link, letter, show() {
      const list = own.map(({ id }) => id), made = guesses.countMade(list);
      score.textContent = made ? `${guesses.countRight(list)} of ${made} right` : formatPlural(own.length, "statement");
    } };
  });
  document.getElementById("contents").append(...links.map(({ link }) => link));
  const spy = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const own = links.find(({ letter }) => target.id === "chapter-" + letter).link;
      if (isIntersecting) own.setAttribute("aria-current", "true"); else own.removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -79% 0px" });
  for (const section of document.querySelectorAll(".chapter")) spy.observe(section);
  return () => links.forEach(({ show }) => show());
}

function makeChapters() {
  const indices = chapters.map(({ records: own }) => makeIndex(own, guesses, (id) => "#" + id));
  document.querySelector("main").replaceChildren(...chapters.map(({ letter, title: name, records: own }, at) =>
    make("section", { id: "chapter-" + letter, class: "chapter", "aria-labelledby": `chapter-${letter}-title` },
      make("h2", { id: `chapter-${letter}-title` }, make("span", { class: "letter" }, letter), " ", name), indices[at].element,
      ...own.map(({ id }) => statements[ids.indexOf(id)].element))));
  return () => indices.forEach(({ show }) => show());
}

// --- the whole page
const showParts = [makeHead(), makeChapters(), makeContents()];
function update() {
  for (const show of showParts) show();
  for (const statement of statements) {
    statement.update(isRevealed || printMode.matches || isPrinting);
    statement.element.hidden = filter !== "all" && statement.record.verdict !== filter && !isPrinting;
  }
}

// On paper there is nothing to guess: all verdicts and figures are shown.
let isPrinting = false;
function preparePrint(isStarting) {
  isPrinting = isStarting;
  update();
  if (isStarting) queue.drawAll();
}
addEventListener("beforeprint", () => preparePrint(true));
addEventListener("afterprint", () => preparePrint(false));
printMode.addEventListener("change", ({ matches }) => preparePrint(matches));
addEventListener("keydown", (event) => { if (event.key === "Escape") for (const statement of statements) statement.unpin(); });

guesses.follow(update);
exposeLive();
update();
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
document.documentElement.dataset.ready = "true";
