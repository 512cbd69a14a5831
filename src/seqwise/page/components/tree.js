// A tree whose root is on the left, such as the hypotheses of a beam search.
import { draw, make, makeChoice } from "./elements.js";
import { explore } from "./explore.js";
import { formatDigits, formatPlural, shorten, showToken } from "./numbers.js";
import { makeAxis, makeItem } from "./pins.js";
import { measureText } from "./scales.js";

const ROW = 30, GAP = 34, TOP = 16;  // pixels: between leaves, between columns, above the first leaf
const SIGNS = { kept: "○", pruned: "✕", finished: "■", best: "★" };
const MEANINGS = { kept: "continued", pruned: "pruned", finished: "finished", best: "best" };
const ORDER = { best: 0, finished: 1, kept: 2, pruned: 3 };

// Returns the nodes that are shown, with depth, children and position: leaves below each other, parents beside their first child.
function arrange(all, hasPruned) {
  const nodes = all.map((node, index) => ({ ...node, index, children: [] }));
  const shown = nodes.filter((node) => hasPruned || node.state !== "pruned");
  const roots = [], isShown = new Set(shown);
  for (const node of shown) (isShown.has(nodes[node.parent]) ? nodes[node.parent].children : roots).push(node);
  const isOnBestPath = (node) => node.state === "best" || node.children.some(isOnBestPath);
  const widths = [];
  let next = 0;
  const visit = (node, depth) => {
    node.depth = depth;
    node.isBest = isOnBestPath(node);
    node.text = shorten(showToken(node.label), 18);
    node.width = Math.ceil(Math.max(measureText(node.text, "600 13px system-ui, sans-serif"), measureText(formatDigits(node.value)))) + 20;
    widths[depth] = Math.max(widths[depth] ?? 0, node.width);
    node.children.sort((a, b) => isOnBestPath(b) - isOnBestPath(a) || ORDER[a.state] - ORDER[b.state] || b.value - a.value);
    node.children.forEach((child) => visit(child, depth + 1));
    node.row = node.children.length ? node.children[0].row : next++;
  };
  roots.forEach((root) => visit(root, 0));
  const starts = widths.reduce((sums, width) => [...sums, sums.at(-1) + width + GAP], [2]);
  for (const node of shown) Object.assign(node, { x: starts[node.depth], y: TOP + ROW * (node.row + 0.5) });
  return { nodes: shown, byIndex: nodes, width: starts.at(-1), height: 2 * TOP + ROW * next };
}

export function drawTree(figure, { pins }) {
  const axis = makeAxis(figure.nodes.map((node) => node.label), "token");
  const svg = draw("svg", { class: "chart tree", "aria-hidden": "true" }), hovered = draw("g", { class: "hovered" });
  const plot = make("div", { class: "plot", "data-chart": "tree", "aria-roledescription": "tree",
    "aria-label": `${figure.title}: tree of ${formatPlural(figure.nodes.length, "node")}, ${figure.value_label}` }, svg);
  let tree = null, hasPruned = true;

  function paint() {
    tree = arrange(figure.nodes, hasPruned);
    svg.setAttribute("viewBox", `0 0 ${tree.width} ${tree.height}`);
    Object.assign(svg.style, { width: tree.width + "px", height: tree.height + "px" });
    plot.style.width = tree.width + "px";
    const pinned = pins.find(axis);
    const paths = tree.nodes.filter((node) => isShown(node.parent)).map((node) => drawEdge(tree.byIndex[node.parent], node));
    svg.replaceChildren(...paths, ...tree.nodes.map((node) => drawNode(node, pinned.includes(node.index))), hovered);
  }
  const isShown = (index) => index >= 0 && tree.byIndex[index].x !== undefined;
  const drawEdge = (from, to) => {
    const x = from.x + from.width, middle = x + (to.x - x) / 2;
    return draw("path", { class: `edge ${to.state}${to.isBest ? " on-best" : ""}`,
      d: `M${x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
  };
  const drawNode = (node, isPinned) => draw("g", { class: `node ${node.state}${node.isBest ? " on-best" : ""}${isPinned ? " is-pinned" : ""}`,
    transform: `translate(${node.x} ${node.y})`, "data-index": node.index },
    draw("rect", { x: 0, y: -13, width: node.width, height: 26, rx: 5 }),
    draw("text", { class: "sign", x: 9, y: -1, "text-anchor": "middle" }, SIGNS[node.state]),
    draw("text", { class: "node-name", x: 17, y: -1 }, node.text), draw("text", { class: "amount", x: 17, y: 10 }, formatDigits(node.value)));

  const makeMark = (node) => node && { key: String(node.index), index: node.index };
  explore(plot, {
    find: (x, y) => makeMark(tree.nodes.find((node) => x >= node.x && x <= node.x + node.width && Math.abs(y - node.y) <= 13)) ?? null,
    describe({ index }) {
      const node = tree.byIndex[index], path = [];
      for (let at = index; at >= 0; at = figure.nodes[at].parent) path.unshift(showToken(figure.nodes[at].label));
      return { value: formatDigits(node.value), title: figure.value_label, text: node.detail ?? "",
        rows: [["state", MEANINGS[node.state]], ["so far", shorten(path.join(" "), 80)]], at: { x: node.x + node.width / 2, y: node.y } };
    },
    highlight(mark) {
      hovered.replaceChildren();
      const node = mark && tree.byIndex[mark.index];
      if (node?.x !== undefined) hovered.append(draw("rect", { x: node.x - 1.5, y: node.y - 14.5, width: node.width + 3, height: 29, rx: 6 }));
    },
    first: () => makeMark(tree.nodes[0]),
    step({ index }, dx, dy) {
      const node = tree.byIndex[index];
      if (dx < 0) return isShown(node.parent) ? makeMark(tree.byIndex[node.parent]) : null;
      if (dx > 0) return makeMark(node.children[0]) ?? null;
      const column = tree.nodes.filter((other) => other.depth === node.depth).sort((a, b) => a.y - b.y);
      return makeMark(column[column.indexOf(node) + dy]) ?? null;
    },
    items: ({ index }) => [makeItem(axis, index)],
  }, pins);
  pins.follow(plot, () => pins.find(axis), paint);
  paint();
  const states = [...new Set(figure.nodes.map((node) => node.state))].sort((a, b) => ORDER[a] - ORDER[b]);
  const signs = states.map((state) => make("span", { class: "sign-name" }, make("b", { "aria-hidden": "true" }, SIGNS[state]), " " + MEANINGS[state]));
  const switchPruned = (value) => { hasPruned = value === "shown"; paint(); };
  return make("div", {},
    make("div", { class: "controls" }, make("div", { class: "signs" }, ...signs),
      states.includes("pruned") && makeChoice("pruned branches", [["shown", "shown"], ["hidden", "hidden"]], "shown", switchPruned)),
    make("div", { class: "scroller" }, plot));
}
