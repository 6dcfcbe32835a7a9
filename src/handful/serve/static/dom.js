// Elements without innerHTML: text is always text, so no name can become markup.

/** An element. Props: `class`, `vars` (CSS variables), `on` (listeners), `data`; all others are attributes. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "vars") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/**
 * Make the children of `parent` those of `items`, keeping the nodes (and the focus) of those that stay.
 * `update` is called only where an item is another object than before.
 */
export function keyed(parent, items, key, create, update) {
  const wanted = new Set(items.map(key));
  const kept = new Map();
  for (const node of [...parent.children]) {
    if (wanted.has(node.dataset.key)) kept.set(node.dataset.key, node);
    else node.remove();
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    let node = kept.get(key(item));
    if (!node) {
      node = create(item);
      node.dataset.key = key(item);
    }
    if (update && node.given !== item) update(node, item);
    node.given = item;
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 16.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z",
  undo: "M8 5 4 9l4 4M4 9h10a5 5 0 0 1 0 10h-4",
  redo: "m16 5 4 4-4 4M20 9H10a5 5 0 0 0 0 10h4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  check: "m5 12.5 4.5 4.5L19 7.5",
  arrow: "M5 12h14M13 6l6 6-6 6",
  down: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  close: "M6 6l12 12M18 6 6 18",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4v16a8 8 0 0 0 0-16",
  keys: "M3 7h18v10H3zM7 11h.01M12 11h.01M17 11h.01M8 14h8",
  grid: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  open: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  copy: "M8 8h12v12H8zM16 8V4H4v12h4",
};

/** A small line drawing; decoration only, so that labels say what a button does. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export const button = (label, name, on, props = {}) =>
  h("button", { type: "button", class: "button", ...props, on: { click: on } }, name ? icon(name) : null, h("span", {}, label));

export const iconButton = (label, name, on, props = {}) =>
  h("button", { type: "button", class: "button round", "aria-label": label, title: label, ...props, on: { click: on } }, icon(name));

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;
export const images = (count) => (count === 1 ? "1 image" : `${count} images`);

/** The colour of a class: hues a golden angle apart, so that neighbours differ. */
export const hue = (index) => ({ "--hue": String(Math.round((190 + index * 137.5) % 360)) });

export function toast(message, kind = "info") {
  const place = document.getElementById("toasts");
  const close = iconButton("Dismiss", "close", () => note.remove());
  const note = h("div", { class: `toast ${kind}` }, h("span", {}, message), close);
  place.append(note);
  while (place.children.length > 3) place.firstElementChild.remove();
  setTimeout(() => note.remove(), kind === "bad" ? 12000 : 5000);
}

/** A modal dialog; it is removed when it closes. */
export function dialog(title, ...content) {
  const close = iconButton("Close", "close", () => box.close());
  const heading = h("h2", { id: "dialog-title" }, title);
  const box = h("dialog", { "aria-labelledby": "dialog-title" }, h("header", {}, heading, close), ...content);
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}
