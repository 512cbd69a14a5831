// Markdown as elements: headings, paragraphs, lists, tables, code and emphasis. Text stays text: HTML in it is not
// interpreted, links are not followed, and images are left out.
import { make, makeCopyButton } from "../../../page/components/elements.js";

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"' };
const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|!\[[^\]]*\]\([^)]*\)|\[((?:\\.|[^\]\\])*)\]\(([^)]*)\)|\\([!-/:-@[-`{-~])|&(?:lt|gt|amp|quot);/g;

// The parts of a line: code, bold words, links as their text, and text without its escapes.
function renderLine(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1]) parts.push(make("code", {}, match[2].length > 2 && match[2].startsWith(" ") && match[2].endsWith(" ") ? match[2].slice(1, -1) : match[2]));
    else if (match[3]) parts.push(make("strong", {}, ...renderLine(match[3])));
    else if (match[4] !== undefined) parts.push(...renderLine(match[4]));
    else if (match[6]) parts.push(match[6]);
    else parts.push(ENTITIES[match[0]] ?? "");  // an image is left out
  }
  return [...parts, text.slice(end)].filter((part) => part !== "");
}

const splitCells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

// Each kind of block: whether a line begins one, and how many lines it takes, with its elements.
function readCode(lines, at) {
  const fence = lines[at].match(/^`{3,}/)[0], rest = lines.slice(at + 1), length = rest.findIndex((line) => line.trim() === fence);
  const content = length < 0 ? rest : rest.slice(0, length), code = make("pre", {}, make("code", {}, content.join("\n")));
  return [content.length + 2, make("div", { class: "command" }, code, makeCopyButton(code))];
}

function readTable(lines, at) {
  const body = lines.slice(at + 2), length = body.findIndex((line) => !line.includes("|")), rows = length < 0 ? body : body.slice(0, length);
  return [rows.length + 2, make("div", { class: "scroller box" }, make("table", {},
    make("thead", {}, make("tr", {}, ...splitCells(lines[at]).map((cell) => make("th", { scope: "col", class: "words" }, ...renderLine(cell))))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...splitCells(row).map((cell) => make("td", { class: "words" }, ...renderLine(cell))))))))];
}

function readList(lines, at) {
  const rest = lines.slice(at), length = rest.findIndex((line) => !/^\s*([-*]|\d+\.) /.test(line)), items = length < 0 ? rest : rest.slice(0, length);
  return [items.length, make(/^\s*\d/.test(lines[at]) ? "ol" : "ul", {}, ...items.map((item) => make("li", {}, ...renderLine(item.replace(/^\s*([-*]|\d+\.) /, "")))))];
}

function readParagraph(lines, at) {
  const rest = lines.slice(at), length = rest.findIndex((line, index) => index > 0 && (line.trim() === "" || /^(#|`{3}|\s*([-*]|\d+\.) )/.test(line)));
  const content = length < 0 ? rest : rest.slice(0, length), parts = renderLine(content.join(" "));
  return [content.length, parts.length > 0 && make("p", {}, ...parts)];
}

// Returns the elements of a text. Its headings are at most of the second level: the page has a title of its own.
export function renderMarkdown(text) {
  const lines = text.split("\n"), elements = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at], heading = line.match(/^(#{1,6}) (.*)/);
    let length = 1, element = null;
    if (heading) element = make("h" + Math.min(4, heading[1].length + 1), {}, ...renderLine(heading[2]));
    else if (/^`{3,}/.test(line)) [length, element] = readCode(lines, at);
    else if (line.includes("|") && /^[\s|:-]+$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) [length, element] = readTable(lines, at);
    else if (/^\s*([-*]|\d+\.) /.test(line)) [length, element] = readList(lines, at);
    else if (line.trim() !== "") [length, element] = readParagraph(lines, at);
    if (element) elements.push(element);
    at += length;
  }
  return elements;
}
