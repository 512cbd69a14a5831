// Style sheets of pages, which are loaded with the page.
import { make } from "../../page/components/elements.js";

const loaded = new Map();

// Adds the style sheet of a page, once; resolves when it applies.
export function loadStyle(name) {
  if (!loaded.has(name)) {
    const link = make("link", { rel: "stylesheet", href: new URL(`./pages/${name}.css`, import.meta.url).href });
    loaded.set(name, new Promise((resolve) => { link.addEventListener("load", resolve); link.addEventListener("error", resolve); }));
    document.head.append(link);
  }
  return loaded.get(name);
}
