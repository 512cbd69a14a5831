// The menu of a run: open, use, look inside, tags and note, stop, resume, delete.
import { make, makeButton } from "../../../page/components/elements.js";
import { canDelete, canResume, canStop } from "../actions.js";

// [text, what it does, address] of each entry of the menu of a run.
function listEntries(row, studio, actions, onEdit) {
  const isRun = row.kind === "run", page = isRun ? "run" : "compare";
  return [
    ["Open", null, studio.makeAddress(page, { id: row.id })],
    ["Use", null, studio.makeAddress("use", { id: row.id })],
    ["Look inside", null, studio.makeAddress("inside", { id: row.id })],
    ["Tags and note", () => onEdit(row)],
    canStop(row) && ["Stop", () => actions.stop([row])],
    canResume(row) && ["Resume", () => actions.resume([row])],
    canDelete(row) && ["Delete", () => actions.remove([row])],
  ].filter(Boolean);
}

// A menu below a button. Arrow keys move; it closes by itself when something else is clicked.
export function openMenu(row, button, studio, actions, onEdit) {
  const menu = make("div", { class: "runs-menu", popover: "auto", role: "menu", "aria-label": `Actions for ${row.name}` },
    ...listEntries(row, studio, actions, onEdit).map(([text, act, href]) => {
      if (href) return make("a", { role: "menuitem", href, tabindex: "-1" }, text);
      return makeButton(text, () => { menu.hidePopover(); act(); }, { role: "menuitem", tabindex: "-1" });
    }));
  document.body.append(menu);
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState !== "closed") return;
    const hadFocus = menu.contains(document.activeElement) || document.activeElement === document.body;
    menu.remove();
    if (hadFocus) button.closest("tr")?.focus({ preventScroll: true });
  });
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children], at = items.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    items.at(next % items.length).focus();
    event.preventDefault();
  });
  menu.showPopover();
  const box = button.getBoundingClientRect();
  menu.style.left = Math.max(8, Math.min(innerWidth - menu.offsetWidth - 8, box.right - menu.offsetWidth)) + "px";
  menu.style.top = (box.bottom + menu.offsetHeight + 6 <= innerHeight ? box.bottom + 4 : Math.max(8, box.top - menu.offsetHeight - 4)) + "px";
  menu.firstElementChild.focus();
}
