// The pile of unlabelled images, what to label next first; one key accepts the guess.
import { dress, thumb } from "./board.js";
import { button, h, hue, images, keyed, percent } from "./dom.js";
import { chosenFiles, dropZone } from "./files.js";

export function pile(project) {
  const title = h("h2", {}, "Pile");
  const next = h("div", { class: "next" });
  const strip = h("ul", { class: "thumbs strip" });
  const add = button("Add unlabelled images", "plus", () => chosenFiles(true, (entries) => project.upload(entries.map((entry) => ({ ...entry, label: null })))));
  const empty = h("p", { class: "soft" }, "Images without a label wait here, sorted by how much their label would teach.");
  const node = h("section", { class: "pile card", "aria-label": "Pile of unlabelled images" }, h("header", {}, title, h("span", { class: "grow" }), add), empty, h("div", { class: "heap" }, next, strip));
  dropZone(project, node, () => null);
  const render = () => {
    const { pile: heap, classes, unlabelled } = project.state;
    title.textContent = unlabelled ? `Pile · ${images(unlabelled)} to label` : "Pile";
    empty.hidden = heap.length > 0;
    node.classList.toggle("empty", !heap.length);
    project.next = heap[0] ?? null;
    next.hidden = !heap.length;
    if (heap.length) showNext(project, next, heap[0], classes);
    else next.replaceChildren();
    const rest = heap.slice(1);
    keyed(
      strip,
      rest,
      (each) => each.id,
      (each) => h("li", {}, thumb(project, each.id), h("small", {}, h("span", {}), h("b", {}))),
      (li, each) => {
        dress(project, li.firstElementChild, project.items.get(each.id));
        const [guess, sure] = li.lastElementChild.children;
        guess.textContent = each.guess ?? "";
        sure.textContent = each.guess ? percent(each.probability) : "";
      },
    );
  };
  return { node, render };
}

function showNext(project, place, first, classes) {
  const item = project.items.get(first.id);
  const choose = (label) => () => project.label([first.id], label);
  const choices = classes.slice(0, 12).map((each, index) =>
    h("button", { type: "button", class: "button small move", vars: hue(index), on: { click: choose(each.name) } }, h("i", { class: "dot" }), h("span", {}, each.name), index < 9 ? h("kbd", { "aria-hidden": "true" }, String(index + 1)) : null),
  );
  const picture = place.querySelector(`.thumb[data-id="${first.id}"]`) ?? thumb(project, first.id);
  dress(project, picture, item);
  const accept = first.guess
    ? h("button", { type: "button", class: "button primary accept", on: { click: choose(first.guess) } }, h("span", {}, `It is ${first.guess}`), h("small", {}, percent(first.probability)), h("kbd", { "aria-hidden": "true" }, "Enter"))
    : null;
  place.replaceChildren(
    picture,
    h("div", { class: "choices" }, h("p", {}, h("strong", {}, "Next"), h("span", { class: "soft" }, ` ${item.name}`)), accept, h("div", { class: "moves" }, ...choices)),
  );
}

/** Accept the guess for the image on top. */
export function accept(project) {
  if (project.next?.guess) project.label([project.next.id], project.next.guess);
}
