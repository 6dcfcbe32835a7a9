// How good it is: leave-one-out accuracy, classes, confusions, and what is worth a look.
import { dress, openImage, thumb } from "./board.js";
import { button, dialog, h, hue, images, keyed, percent } from "./dom.js";

const LARGEST_TABLE = 24;
const LISTED = 8;

export function quality(project) {
  const top = h("div", {});
  const rows = h("ul", { class: "bars" });
  const bars = h("div", {}, h("h3", {}, "Recognised when held out"), rows);
  const table = h("div", {});
  const doubts = h("div", { class: "doubts" });
  const notes = h("div", { class: "stack" });
  const node = h("section", { class: "quality card", id: "quality", "aria-label": "How good it is" }, h("h2", {}, "How good it is"), h("div", { class: "stack" }, top, doubts, bars, table, notes));
  const render = () => {
    const { state } = project;
    const tested = Boolean(state.estimate && state.estimate.accuracy !== null);
    top.replaceChildren(tested ? headline(state.estimate) : waiting(state));
    bars.hidden = table.hidden = !tested;
    if (tested) {
      showBars(rows, state.classes);
      table.replaceChildren(confusion(project));
    }
    showDoubts(project, doubts);
    notes.replaceChildren(...worth(project));
    notes.hidden = !notes.children.length;
  };
  return { node, render };
}

function waiting(state) {
  const filled = state.classes.filter((each) => each.count).length;
  const text = filled < 2 ? "Once two classes have images, it tests itself after every change: each image is predicted from all the others." : "Give some class a second image, so that one can be held out to test the rest.";
  return h("p", { class: "soft" }, text);
}

function headline({ accuracy, low, high, examples, moved, exact, untested }) {
  const missing = untested ? ` ${untested === 1 ? "1 class has" : `${untested} classes have`} too few images to be tested.` : "";
  const change = moved === null || moved === undefined || Math.abs(moved) < 0.0005 ? null : h("span", { class: `moved ${moved > 0 ? "up" : "down"}` }, `${moved > 0 ? "▲" : "▼"} ${Math.abs(100 * moved).toFixed(1)}`, h("span", { class: "hidden" }, " points since the last change"));
  return h(
    "div",
    { class: "headline" },
    h("p", { class: "number" }, h("span", { id: "accuracy" }, percent(accuracy, 1)), change),
    h("div", { class: "interval", vars: { "--low": low, "--high": high, "--at": accuracy }, "aria-hidden": "true" }, h("i", {}), h("b", {})),
    h("p", { class: "soft" }, `of new images like these, ${exact ? "" : "about, "}by leave-one-out over ${images(examples)}. 95% interval: ${percent(low)} to ${percent(high)}.${missing}`),
  );
}

/** A bar per class; those that did not move are left alone. */
function showBars(rows, classes) {
  const share = (each) => (each.tested ? each.right / each.tested : 0);
  const count = (each) => (each.tested ? `${Number(each.right.toFixed(1))} of ${each.tested}` : "untested");
  const create = (each) => h("li", {}, h("span", { class: "name" }, h("i", { class: "dot" }), h("span", {}, each.name)), h("span", { class: "track", "aria-hidden": "true" }, h("i", {})), h("span", { class: "count" }));
  const order = new Map(classes.map((each, index) => [each, index]));
  keyed(rows, classes, (each) => each.name, create, (li, each) => {
    const now = `${order.get(each)} ${count(each)}`;
    if (li.now === now) return;
    li.now = now;
    for (const [key, value] of Object.entries({ ...hue(order.get(each)), "--share": share(each) })) li.style.setProperty(key, value);
    li.lastElementChild.textContent = count(each);
  });
}

/** Rows are labels, columns what the held-out images were taken for; a cell opens its images. */
function confusion(project) {
  const { classes, items } = project.state;
  const cells = classes.map(() => classes.map(() => []));
  for (const item of items) if (item.guess !== undefined && project.order.has(item.guess)) cells[project.order.get(item.label)]?.[project.order.get(item.guess)].push(item);
  const wrong = cells.some((row, r) => row.some((cell, c) => r !== c && cell.length));
  if (!wrong) return h("p", { class: "soft" }, "No class is taken for another.");
  if (classes.length > LARGEST_TABLE) return pairs(project, cells);
  const most = Math.max(...cells.flat().map((cell) => cell.length));
  const head = h("tr", {}, h("td", {}), ...classes.map((each, index) => h("th", { scope: "col", vars: hue(index), title: each.name }, h("i", { class: "dot" }), h("span", { class: "hidden" }, each.name))));
  const rows = cells.map((row, r) =>
    h(
      "tr",
      { vars: hue(r) },
      h("th", { scope: "row", title: classes[r].name }, h("i", { class: "dot" }), h("span", {}, classes[r].name)),
      ...row.map((cell, c) => h("td", {}, cell.length ? cellButton(project, cell, classes[r].name, classes[c].name, r === c, cell.length / most) : null)),
    ),
  );
  return h("div", {}, h("h3", {}, "Taken for"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "confusion" }, h("thead", {}, head), h("tbody", {}, ...rows))));
}

function cellButton(project, cell, from, to, right, share) {
  const label = right ? `${cell.length} of ${from} recognised` : `${cell.length} of ${from} taken for ${to}`;
  return h("button", { type: "button", class: right ? "cell right" : "cell wrong", vars: { "--share": 0.25 + 0.75 * share }, "aria-label": label, title: label, on: { click: () => gallery(project, label, cell) } }, String(cell.length));
}

function pairs(project, cells) {
  const { classes } = project.state;
  const found = cells.flatMap((row, r) => row.map((cell, c) => ({ cell, r, c }))).filter(({ cell, r, c }) => r !== c && cell.length);
  found.sort((a, b) => b.cell.length - a.cell.length);
  const rows = found.slice(0, LISTED).map(({ cell, r, c }) => h("li", {}, button(`${classes[r].name} for ${classes[c].name}: ${cell.length}`, null, () => gallery(project, `${classes[r].name} taken for ${classes[c].name}`, cell), { class: "button small" })));
  return h("div", {}, h("h3", {}, "Taken for"), h("ul", { class: "moves" }, ...rows));
}

function gallery(project, title, items) {
  const list = h("ul", { class: "thumbs gallery" }, ...items.map((item) => {
    const node = h("button", { type: "button", class: "thumb", on: { click: () => (box.close(), openImage(project, item.id)) } }, h("img", { src: project.small(item.id), alt: "" }));
    dress(project, node, item);
    return h("li", {}, node);
  }));
  const box = dialog(title, list);
}

/** Labels that look wrong, with a button for either answer. */
function showDoubts(project, place) {
  const found = project.state.items.filter((item) => item.doubt !== undefined).sort((a, b) => b.doubt - a.doubt);
  const title = found.length === 1 ? "A label that looks wrong" : `${found.length} labels that look wrong`;
  place.hidden = !found.length;
  place.replaceChildren(h("h3", {}, title), h("ul", { class: "worth" }, ...found.slice(0, LISTED).map((item) => doubt(project, item))));
}

/** Near duplicates, and classes that need more images. */
function worth(project) {
  const { duplicates, classes } = project.state;
  const parts = [];
  if (duplicates.length) parts.push(h("div", {}, h("h3", {}, `Near duplicates (${duplicates.length})`), h("ul", { class: "worth" }, ...duplicates.slice(0, LISTED).map((pair) => twins(project, pair)))));
  const needy = classes.filter((each) => each.needs);
  if (needy.length) parts.push(h("div", {}, h("h3", {}, "Would help most"), h("ul", { class: "needs-list" }, ...needy.slice(0, LISTED).map((each) => h("li", { vars: hue(project.order.get(each.name)) }, h("i", { class: "dot" }), h("span", {}, h("strong", {}, each.name), ` ${each.needs}`))))));
  return parts;
}

function small(project, item) {
  const node = thumb(project, item.id);
  dress(project, node, item);
  return node;
}

function doubt(project, item) {
  return h(
    "li",
    {},
    small(project, item),
    h("div", {}, h("p", {}, h("strong", {}, item.label), " looks like ", h("strong", {}, item.guess)), h("div", { class: "row" }, button(`Move to ${item.guess}`, null, () => project.label([item.id], item.guess), { class: "button small primary" }), button("It is right", null, () => project.act("confirm", { items: [item.id] }), { class: "button small" }))),
  );
}

function twins(project, pair) {
  const found = pair.map((id) => project.items.get(id)).filter(Boolean);
  const labels = [...new Set(found.map((item) => item.label))];
  const text = labels.length > 1 ? `The same picture in ${labels.join(" and ")}?` : `Almost the same picture in ${labels[0]}`;
  return h("li", {}, h("span", { class: "pair" }, ...found.slice(0, 3).map((item) => small(project, item))), h("div", {}, h("p", {}, text), button("Delete one", null, () => project.act("delete", { items: [found.at(-1).id] }), { class: "button small" })));
}
