// Links to the statements of a chapter. After a guess whose answer is known, they say whether it was right.
import { make } from "../../page/components/elements.js";

// `getAddress(id)` is the address of a statement.
export function makeIndex(records, guesses, getAddress) {
  const links = records.map(({ id, claim }) => ({ id, claim, link: make("a", { href: getAddress(id) }, id) }));
  const show = () => {
    for (const { id, claim, link } of links) {
      const word = guesses.get(id) === null || !guesses.hasAnswer(id) ? "" : guesses.isRight(id) ? "right" : "wrong";
      link.className = word && "is-" + word;
      link.title = claim + (word && ` (your guess was ${word})`);
      link.textContent = id + (word && (word === "right" ? " ✓" : " ✗"));
      link.setAttribute("aria-label", `${id}: ${link.title}`);
    }
  };
  return { element: make("p", { class: "index" }, ...links.map(({ link }) => link)), show };
}
