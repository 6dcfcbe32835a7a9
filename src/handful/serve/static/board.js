// A column per class with its images: the heart of the page.
import { camera } from "./camera.js";
import { button, dialog, h, hue, icon, iconButton, images, keyed, percent } from "./dom.js";
import { chosenFiles, dropZone } from "./files.js";

const ENOUGH = 5;

export function board(project) {
  const columns = h("div", { class: "columns" });
  const fresh = newClass(project);
  const welcome = h(
    "div",
    { class: "welcome" },
    h("h2", {}, "Show it a few images"),
    h("p", {}, "Name two things to tell apart, and give each a few images: drop files or folders, paste, or hold the camera button. Five of each are a good start."),
  );
  const node = h("section", { class: "board", "aria-label": "Classes" }, welcome, columns);
  const bar = actionBar(project);
  dropZone(project, node, () => null);
  const render = () => {
    const { classes, items } = project.state;
    welcome.hidden = classes.length > 0;
    const members = new Map(classes.map((each) => [each.name, []]));
    for (const item of items) members.get(item.label)?.push(item);
    keyed(
      columns,
      [...classes, null],
      (each) => (each ? `class ${each.name}` : "new"),
      (each) => (each ? column(project, each.name) : fresh),
      (card, each) => each && card.render(each, members.get(each.name), project.order.get(each.name)),
    );
    bar.render();
  };
  return { node, render };
}

function column(project, className) {
  const badge = h("kbd", { class: "badge", "aria-hidden": "true" });
  const name = h("input", { class: "class-name", maxlength: "80", spellcheck: "false", value: className });
  name.addEventListener("change", async () => {
    if (!name.value.trim() || !(await project.act("rename-class", { old: className, name: name.value }))) name.value = className;
  });
  name.addEventListener("keydown", (event) => event.key === "Enter" && name.blur());
  const facts = h("p", { class: "facts" });
  const grid = h("ul", { class: "thumbs" });
  const hint = h("p", { class: "drop-hint" }, "Drop images here");
  const add = () => chosenFiles(true, (entries) => project.upload(entries.map((entry) => ({ ...entry, label: className }))));
  const node = h(
    "section",
    { class: "column", data: { class: className }, "aria-label": `Class ${className}` },
    h("header", {}, badge, name, iconButton(`Delete the class ${className}`, "trash", () => project.act("delete-class", { name: className }), { class: "button round quiet" })),
    facts,
    h("div", { class: "well" }, grid, hint),
    h("footer", {}, button("Add", "plus", add, { "aria-label": `Add images to ${className}` }), camera(project, className)),
  );
  dropZone(project, node, () => className);
  let place = -1;
  let said = "";
  let shown = [];
  node.render = ({ count, tested, right, needs }, items, index) => {
    if (index !== place) {
      place = index;
      for (const [key, value] of Object.entries(hue(index))) node.style.setProperty(key, value);
      badge.textContent = index < 9 ? index + 1 : "";
      badge.hidden = index > 8;
      name.setAttribute("aria-label", `Name of class ${index + 1}`);
    }
    if (document.activeElement !== name && name.value !== className) name.value = className;
    const wanted = count < ENOUGH ? needs : ""; // for the others, the bars tell
    const rate = tested ? ` · ${percent(right / tested)} right` : "";
    if (said !== `${count}${rate}${wanted}`) {
      said = `${count}${rate}${wanted}`;
      facts.replaceChildren(images(count), rate, wanted ? h("span", { class: "needs" }, wanted) : "");
    }
    if (items.length === shown.length && items.every((item, i) => item === shown[i])) return;
    shown = items;
    hint.hidden = items.length > 0;
    keyed(grid, items, (item) => item.id, (item) => h("li", {}, thumb(project, item.id)), (li, item) => dress(project, li.firstElementChild, item));
  };
  return node;
}

/** A picture that can be selected, dragged, moved with the keyboard and opened. */
export function thumb(project, id) {
  const node = h("button", { type: "button", class: "thumb", draggable: "true", data: { id } }, h("img", { src: project.small(id), alt: "", loading: "lazy", decoding: "async", draggable: "false" }));
  node.addEventListener("click", (event) => select(project, id, event));
  node.addEventListener("dblclick", () => openImage(project, id));
  node.addEventListener("dragstart", (event) => {
    if (!project.selected.has(id)) setSelection(project, [id]);
    event.dataTransfer.setData("application/x-handful", JSON.stringify([...project.selected]));
    event.dataTransfer.effectAllowed = "move";
    document.body.classList.add("dragging");
  });
  node.addEventListener("dragend", () => document.body.classList.remove("dragging"));
  return node;
}

export function dress(project, node, item) {
  const doubtful = item.doubt !== undefined;
  node.classList.toggle("doubtful", doubtful);
  node.classList.toggle("waiting", !item.ready);
  node.setAttribute("aria-pressed", project.selected.has(item.id));
  const label = `${item.name}${item.label === null ? "" : `, ${item.label}`}${doubtful ? `, looks like ${item.guess}` : ""}${item.ready ? "" : ", waiting"}`;
  node.setAttribute("aria-label", label);
  node.title = doubtful ? `${item.name}: looks like ${item.guess}` : item.name;
}

function select(project, id, event) {
  if (event.shiftKey && project.anchor) {
    const all = [...document.querySelectorAll(".columns .thumb, .pile .thumb")].map((node) => node.dataset.id);
    const [from, to] = [all.indexOf(project.anchor), all.indexOf(id)].sort((a, b) => a - b);
    setSelection(project, all.slice(Math.max(0, from), to + 1));
    return;
  }
  project.anchor = id;
  const chosen = new Set(event.ctrlKey || event.metaKey ? project.selected : []);
  if (project.selected.has(id) && (event.ctrlKey || event.metaKey || project.selected.size === 1)) chosen.delete(id);
  else chosen.add(id);
  setSelection(project, chosen);
}

export function setSelection(project, ids) {
  project.selected = new Set(ids);
  for (const node of document.querySelectorAll(".thumb[data-id]")) node.setAttribute("aria-pressed", project.selected.has(node.dataset.id));
  project.dispatchEvent(new Event("selection"));
}

/** What can be done with the selected images, at the bottom of the window. */
function actionBar(project) {
  const node = h("div", { class: "actions", role: "toolbar", "aria-label": "Selected images", hidden: true });
  const render = () => {
    const { selected, state } = project;
    node.hidden = !selected.size;
    if (!selected.size) return;
    const moves = state.classes.slice(0, 12).map((each, index) =>
      h("button", { type: "button", class: "button small move", vars: hue(index), title: `Move to ${each.name}`, on: { click: () => move(project, each.name) } }, h("i", { class: "dot" }), h("span", {}, each.name)),
    );
    const ids = () => [...project.selected];
    node.replaceChildren(
      h("strong", {}, images(selected.size)),
      h("span", { class: "moves" }, ...moves, button("Pile", null, () => move(project, null), { class: "button small", title: "Move to the pile of unlabelled images" })),
      selected.size === 1 ? iconButton("Open", "open", () => openImage(project, ids()[0])) : null,
      iconButton("Delete", "trash", () => remove(project, ids())),
      iconButton("Select nothing", "close", () => setSelection(project, [])),
    );
  };
  project.addEventListener("selection", render);
  document.body.append(node);
  return { render };
}

export function move(project, label) {
  const ids = [...project.selected];
  setSelection(project, []);
  return leave(ids, () => project.label(ids, label));
}

export function remove(project, ids) {
  return leave(ids, () => project.act("delete", { items: ids }));
}

/** Run an action that removes images from view, then focus the next image, for keyboard users. */
async function leave(ids, act) {
  const all = [...document.querySelectorAll(".thumb[data-id]")].map((node) => node.dataset.id);
  const next = all.slice(all.indexOf(ids[0]) + 1).find((id) => !ids.includes(id));
  const done = await act();
  if (done && next) document.querySelector(`.thumb[data-id="${next}"]`)?.focus();
}

function newClass(project) {
  const name = h("input", { id: "new-class", class: "field", placeholder: "Name of a new class", maxlength: "80", autocomplete: "off", spellcheck: "false", "aria-label": "Name of a new class" });
  const make = async (event) => {
    event?.preventDefault();
    if (!name.value.trim()) return name.focus();
    if (await project.act("add-class", { name: name.value })) name.value = "";
    name.focus();
  };
  const form = h("form", { class: "column new", "aria-label": "New class", on: { submit: make } }, h("div", { class: "row" }, name, h("button", { type: "submit", class: "button round primary", "aria-label": "Add the class", title: "Add the class" }, icon("plus"))), h("p", { class: "soft" }, "or drop a folder of class folders anywhere, or images here"));
  dropZone(project, form, () => {
    const typed = name.value.trim() || `Class ${project.state.classes.length + 1}`;
    name.value = "";
    return typed;
  });
  return form;
}

/** One image, large, with what the others say of it. */
export function openImage(project, id) {
  const item = project.items.get(id);
  if (!item) return;
  const wrong = item.guess !== undefined && item.guess !== item.label;
  const said = item.label === null ? "Not labelled." : item.guess === undefined ? "It cannot be tested yet: its class has no other image." : wrong ? `All other images say ${item.guess}.` : "All other images agree.";
  const then = (action) => async () => {
    box.close();
    await action();
  };
  const box = dialog(
    item.name,
    h("img", { class: "large", src: project.large(id), alt: `The image ${item.name}` }),
    h("p", {}, item.label === null ? "" : h("strong", {}, item.label), item.label === null ? "" : ". ", said),
    h(
      "footer",
      {},
      wrong ? button(`Move to ${item.guess}`, "arrow", then(() => project.label([id], item.guess)), { class: "button primary" }) : null,
      wrong ? button("It is right", "check", then(() => project.act("confirm", { items: [id] }))) : null,
      button("Delete", "trash", then(() => project.act("delete", { items: [id] }))),
    ),
  );
}
