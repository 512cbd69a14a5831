// `loadStyle` adds the style sheet of a page once, and waits until it applies.
import { make } from "../../page/components/elements.js";

const sheets = new Map();

export function loadStyle(name) {
  if (!sheets.has(name)) sheets.set(name, new Promise((resolve) => {
    const link = make("link", { rel: "stylesheet", href: `/static/studio/static/pages/${name}.css` });
    link.addEventListener("load", resolve);
    link.addEventListener("error", resolve);
    document.head.append(link);
  }));
  return sheets.get(name);
}
