// A statement of the page. Its verdict becomes part of the page when the reader has guessed it, or has asked for all.
import { make, makeButton } from "../../page/components/elements.js";
import { makeAnswer } from "./answers.js";
import { GUESSES, getAnswer } from "./verdicts.js";

const getText = (guess) => GUESSES.find(([one]) => one === guess)[1];

function makeFeedback(record, guess) {
  if (!guess) return make("p", { class: "feedback" }, "You have not guessed this one.");
  const isRight = guess === getAnswer(record);
  return make("p", { class: "feedback " + (isRight ? "is-right" : "is-wrong") }, make("b", {}, isRight ? "Right. " : "Wrong. "), `You guessed: ${getText(guess)}.`);
}

// `context` has the guesses, the palette's scales and styles, and `watch(element, draw)`, which draws figures when they come into view.
export function makeStatement(record, context) {
  const { guesses } = context, titleId = record.id + "-claim";
  const buttons = GUESSES.map(([guess, text]) => makeButton(text, () => {
    guesses.set(record.id, guess);
    answer.element.focus({ preventScroll: true });  // the button is gone
  }, { "data-guess": guess }));
  const question = make("div", { class: "question", role: "group", "aria-label": `Predict ${record.id}` }, make("span", {}, "Predict"), ...buttons);
  const place = make("div", { class: "answer-place" });
  const element = make("section", { id: record.id, class: "statement", "aria-labelledby": titleId },
    make("h3", { id: titleId }, make("a", { class: "number", href: "#" + record.id }, record.id), " ", make("span", {}, record.claim)),
    make("p", { class: "equation" }, record.equation),
    make("p", { class: "measurement" }, make("b", {}, "Measured: "), record.measurement), question, place);
  let answer = null;

  const update = (isRevealed) => {
    const guess = guesses.get(record.id), isShown = isRevealed || guess !== null;
    question.hidden = isShown;
    if (!isShown) { answer = null; place.replaceChildren(); return; }
    if (!answer) {
      answer = makeAnswer(record, context);
      place.append(makeFeedback(record, guess), answer.element);
      context.watch(place, answer.drawFigures);
    } else place.firstChild.replaceWith(makeFeedback(record, guess));
  };
  return { record, element, update, drawFigures: () => answer?.drawFigures(), unpin: () => answer?.unpin() };
}
