// Keys: digits label, arrows move, Enter accepts or opens, Ctrl-Z undoes.
import { move, openImage, remove, setSelection } from "./board.js";
import { dialog, h } from "./dom.js";
import { accept } from "./pile.js";

export function keyboard(project) {
  addEventListener("keydown", (event) => {
    const inside = event.target.closest?.("input:not([type=range]), textarea, select");
    const ctrl = event.ctrlKey || event.metaKey;
    if (document.querySelector("dialog[open]")) return;
    if (ctrl && !inside && ["z", "y"].includes(event.key.toLowerCase())) {
      event.preventDefault();
      project.act(event.shiftKey || event.key.toLowerCase() === "y" ? "redo" : "undo");
      return;
    }
    if (inside || ctrl || event.altKey) return;
    const image = event.target.closest?.(".thumb[data-id]");
    if (/^[1-9]$/.test(event.key)) return digit(project, Number(event.key) - 1, image);
    if (event.key.startsWith("Arrow") && !event.target.matches?.("input")) return arrow(event, image);
    if (event.key === "Delete" || event.key === "Backspace") return removeFocused(project, image);
    if (event.key === "Escape") return setSelection(project, []);
    if (event.key === "?") return shortcuts();
    if (event.key === "Enter" && image && !image.closest(".next")) {
      event.preventDefault();
      return openImage(project, image.dataset.id);
    }
    if (event.key === "Enter" && (!event.target.closest?.("button, a, summary") || image)) {
      event.preventDefault();
      accept(project);
    }
  });
}

/** The selected images, else the one in focus, else the next of the pile, become members of a class. */
function digit(project, index, image) {
  const chosen = project.state.classes[index];
  if (!chosen) return;
  if (!project.selected.size) {
    const id = image?.dataset.id ?? project.next?.id;
    if (!id) return;
    setSelection(project, [id]);
  }
  move(project, chosen.name);
}

/** Delete the selected images, else the one in focus. */
function removeFocused(project, image) {
  const ids = project.selected.size ? [...project.selected] : image ? [image.dataset.id] : [];
  if (ids.length) remove(project, ids);
}

/** Move the focus to the nearest image in a direction. */
function arrow(event, image) {
  const all = [...document.querySelectorAll(".columns .thumb, .pile .thumb")];
  if (!all.length) return;
  event.preventDefault();
  if (!image) return all[0].focus();
  const here = image.getBoundingClientRect();
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  let best = null;
  let least = Infinity;
  for (const node of all) {
    const there = node.getBoundingClientRect();
    const x = there.x + there.width / 2 - here.x - here.width / 2;
    const y = there.y + there.height / 2 - here.y - here.height / 2;
    const along = x * dx + y * dy;
    const cost = along + 3 * Math.abs(x * dy) + 3 * Math.abs(y * dx);
    if (along > 4 && cost < least) [best, least] = [node, cost];
  }
  best?.focus();
}

export function shortcuts() {
  const rows = [
    ["1 to 9", "Move the selected image, or the next of the pile, to that class"],
    ["Enter", "Accept the guess for the pile; open an image"],
    ["Arrows", "Go from image to image"],
    ["Space", "Select the image in focus"],
    ["Delete", "Delete the selected images"],
    ["Ctrl-Z, Ctrl-Shift-Z", "Undo and redo anything"],
    ["Ctrl-V", "Paste an image into the class or tray you touched last"],
    ["Esc", "Select nothing"],
  ];
  dialog("Keyboard", h("dl", { class: "keys" }, ...rows.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}
