// A statement of a page. Its verdict becomes part of the page when the reader has guessed it, or has asked for all.
// The page of the studio, which runs the experiments, is made of the same parts.
import { make, makeButton } from "../../page/components/elements.js";
import { makeAnswer } from "./answers.js";
import { GUESSES, getAnswer } from "./verdicts.js";

const getText = (guess) => GUESSES.find(([one]) => one === guess)[1];

// The reader's guess, and whether it was right.
export function makeFeedback(record, guess) {
  if (!guess) return make("p", { class: "feedback" }, "You have not guessed this one.");
  const isRight = guess === getAnswer(record);
  return make("p", { class: "feedback " + (isRight ? "is-right" : "is-wrong") }, make("b", {}, isRight ? "Right. " : "Wrong. "), `You guessed: ${getText(guess)}.`);
}

// The buttons to guess with, and further elements beside them.
export function makeQuestion({ id }, onGuess, ...others) {
  const buttons = GUESSES.map(([guess, text]) => makeButton(text, () => onGuess(guess), { "data-guess": guess }));
  return make("div", { class: "question", role: "group", "aria-label": `Predict ${id}` }, make("span", {}, "Predict"), ...buttons, ...others);
}

// The claim, what is measured, and what belongs to it. `address` is that of the statement itself.
export function makeSection({ id, claim, equation, measurement }, address, ...content) {
  const titleId = id + "-claim";
  return make("section", { id, class: "statement", "aria-labelledby": titleId },
    make("h3", { id: titleId }, make("a", { class: "number", href: address }, id), " ", make("span", {}, claim)),
    make("p", { class: "equation" }, equation), make("p", { class: "measurement" }, make("b", {}, "Measured: "), measurement), ...content);
}

// `context` has the guesses, the palette's scales and styles, and `watch(element, draw)`, which draws figures when they come into view.
export function makeStatement(record, context) {
  const { guesses } = context;
  const question = makeQuestion(record, (guess) => {
    guesses.set(record.id, guess);
    answer.element.focus({ preventScroll: true });  // the button is gone
  });
  const place = make("div", { class: "answer-place" }), element = makeSection(record, "#" + record.id, question, place);
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
