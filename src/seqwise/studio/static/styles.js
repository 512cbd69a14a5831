// Style sheets of pages, each loaded once. The promise is fulfilled when the sheet applies.
const sheets = new Map();

export function loadStyle(name) {
  if (!sheets.has(name)) sheets.set(name, new Promise((resolve) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: new URL(`./pages/${name}.css`, import.meta.url).href, onload: resolve, onerror: resolve });
    document.head.append(link);
  }));
  return sheets.get(name);
}
