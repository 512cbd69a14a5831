// Pins: tokens, layers or units that stay highlighted in every figure of a page that shows them.
//
// An axis is a list of names, such as the tokens of a text. Two axes with the same names are the same axis, so that the
// third "the" of a text is the third in every figure. A name that occurs once in each of two different axes is also the
// same item, such as a unit in two lists of units. A bare number is called after its label: "12" of "unit" is "unit 12".
// "cat [3]" in a list is the token "cat" at position 3 of a text.
import { make, makeButton } from "./elements.js";
import { showToken } from "./numbers.js";

const SEPARATOR = "\u0000";

export function makeAxis(names, label = "") {
  const noun = label.trim().split(/\s+/).at(-1);
  const keys = names.map((name) => /^\d+$/.test(name) ? `${noun} ${name}` : name);
  const positions = new Map();
  keys.forEach((key, index) => positions.set(key, positions.has(key) ? -1 : index));
  return { names, label, keys, positions, identity: keys.join(SEPARATOR), isNumbered: names.every((name) => /^\d+$/.test(name)) };
}

export const makeItem = (axis, index) => ({ axis, index, key: axis.keys[index] });

// The position of an item on an axis, or −1.
function findItem(item, axis) {
  if (item.axis.identity === axis.identity) return item.index;
  const [, name, position] = /^(.*) \[(\d+)\]$/s.exec(item.key) ?? [], listed = axis.positions.get(`${showToken(item.key)} [${item.index}]`);
  if (listed >= 0) return listed;
  if (position < axis.names.length && showToken(axis.names[position]) === name) return Number(position);
  return item.axis.positions.get(item.key) >= 0 ? axis.positions.get(item.key) ?? -1 : -1;
}

// The name of a position. Words repeat: those of a text, and others that occur twice, are named with their index.
export function nameItem(axis, index) {
  const name = showToken(axis.names[index] ?? "");
  const hasIndex = !axis.isNumbered && (/token|word|character/.test(axis.label) || axis.positions.get(axis.keys[index]) < 0);
  return hasIndex ? `${name} [${index}]` : name;
}

export function createPins() {
  let items = [], listeners = [];
  const has = (item) => items.some((other) => findItem(other, item.axis) === item.index);
  const change = (next) => {
    items = next;
    listeners = listeners.filter(({ element }) => element.isConnected);
    for (const listener of listeners) listener.update();
  };
  return {
    getItems: () => items,
    has,
    // The pinned positions of an axis. A query token is highlighted among the queries, not also among the keys, which
    // may be the `other` axis of the same figure.
    find: (axis, other = axis) => [...new Set(items.filter((item) => item.axis.label === axis.label || item.axis.label !== other.label)
      .map((item) => findItem(item, axis)))].filter((index) => index >= 0),
    // Pins these items instead of all others, or in addition to them; unpins them if they are pinned.
    select(chosen, isAdded = false) {
      if (chosen.length === 0) return;
      const others = items.filter((item) => !chosen.some((one) => findItem(item, one.axis) === one.index));
      if (chosen.every(has)) change(isAdded ? others : others.length ? chosen : []);
      else change([...isAdded ? others : [], ...chosen.filter((one, at) => chosen.findIndex((other) => findItem(other, one.axis) === one.index) === at)]);
    },
    remove: (item) => change(items.filter((other) => other !== item)),
    clear: () => { if (items.length) change([]); },
    // Calls `onChange` when what `read` returns has changed, for as long as the element is part of the page.
    follow(element, read, onChange) {
      let last = JSON.stringify(read());
      listeners.push({ element, update() {
        const now = JSON.stringify(read());
        if (now === last) return;
        last = now;
        onChange();
      } });
    },
  };
}

// A bar that names what is pinned, with a button for each.
export function drawPinBar(pins) {
  const list = make("span", { class: "pin-list" });
  const bar = make("div", { class: "pin-bar", role: "status", "aria-label": "pinned", hidden: true },
    make("span", {}, "Pinned"), list, makeButton("Unpin all", () => pins.clear(), { class: "small" }), make("kbd", {}, "Esc"));
  pins.follow(bar, () => pins.getItems().map((item) => [item.axis.label, item.key, item.index]), () => {
    const items = pins.getItems();
    bar.hidden = items.length === 0;
    list.replaceChildren(...items.map((item) => {
      const name = nameItem(item.axis, item.index);
      return makeButton(make("bdi", {}, item.axis.isNumbered ? item.key : name), () => pins.remove(item),
        { class: "pinned-item", "aria-label": `Unpin ${item.axis.label} ${name}` });
    }));
  });
  return bar;
}
