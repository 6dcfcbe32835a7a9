// The page of one project: the bar on top, and the four places below it.
import { board } from "./board.js";
import { h, icon, iconButton, percent, button, dialog, toast } from "./dom.js";
import { listen } from "./files.js";
import { keyboard, shortcuts } from "./keyboard.js";
import { pile } from "./pile.js";
import { Project } from "./project.js";
import { quality } from "./quality.js";
import { takeAway } from "./take.js";
import { themeButton } from "./theme_button.js";
import { tray } from "./tray.js";

export async function studio(root, id) {
  const project = new Project(id);
  try {
    await project.open();
  } catch (error) {
    root.replaceChildren(
      h("main", { id: "main", class: "start" }, h("div", { class: "hero" }, h("h1", {}, "This project does not open."), h("p", {}, error.message), h("a", { href: "/", class: "button primary" }, "All projects"))),
    );
    return;
  }
  const places = [board(project), pile(project), quality(project), tray(project)];
  const [columns, heap, meter, test] = places;
  root.replaceChildren(
    bar(project),
    progress(project),
    h(
      "main",
      { id: "main", class: "studio", tabindex: "-1" },
      h("div", { class: "left" }, columns.node, heap.node),
      h("div", { class: "side" }, meter.node, test.node),
    ),
  );
  const render = () => {
    document.title = `${project.state.name} · handful studio`;
    for (const place of places) place.render();
  };
  project.addEventListener("change", render);
  render();
  listen(project, { tray: test });
  keyboard(project, { tray: test });
}

function bar(project) {
  const name = h("input", { class: "project-name", "aria-label": "Name of the project", maxlength: "80", spellcheck: "false" });
  name.addEventListener("change", () => name.value.trim() && project.act("rename", { name: name.value }));
  name.addEventListener("keydown", (event) => event.key === "Enter" && name.blur());
  const undo = iconButton("Undo", "undo", () => project.act("undo"));
  const redo = iconButton("Redo", "redo", () => project.act("redo"));
  const embedding = button("", "chip", () => chooseEmbedding(project), { class: "button chip" });
  const saved = h("span", { class: "saved", role: "status" });
  const score = h("a", { class: "score", href: "#quality" });
  const render = () => {
    const { state } = project;
    if (document.activeElement !== name) name.value = state.name;
    undo.disabled = !state.undo;
    redo.disabled = !state.redo;
    undo.title = state.undo ? `Undo: ${state.undo} (Ctrl-Z)` : "Nothing to undo";
    redo.title = state.redo ? `Redo: ${state.redo} (Ctrl-Shift-Z)` : "Nothing to redo";
    embedding.lastElementChild.textContent = state.embedding.active || "embedding";
    embedding.setAttribute("aria-label", `Embedding: ${state.embedding.active || "chosen with the first images"}. Change it`);
    const accuracy = state.estimate?.accuracy ?? null;
    score.hidden = accuracy === null;
    score.textContent = accuracy === null ? "" : percent(accuracy);
    score.setAttribute("aria-label", `${score.textContent} right. How good it is`);
    saved.replaceChildren(...(project.alive ? [icon("check"), "Saved"] : ["Not connected"]));
    saved.classList.toggle("bad", !project.alive);
  };
  project.addEventListener("change", render);
  project.addEventListener("alive", render);
  render();
  return h(
    "header",
    { class: "bar" },
    h("a", { href: "/", class: "brand", "aria-label": "All projects", title: "All projects" }, h("img", { src: "/static/icon.svg", alt: "" })),
    h("h1", { class: "hidden" }, "handful studio"),
    name,
    saved,
    score,
    h("span", { class: "grow" }),
    undo,
    redo,
    embedding,
    iconButton("Keyboard", "keys", shortcuts, { class: "button round wide-only" }),
    themeButton(),
    button("Take it away", "down", () => takeAway(project), { class: "button primary", "aria-label": "Take it away", title: "Take it away" }),
  );
}

function progress(project) {
  const meter = h("progress", { max: "1", "aria-label": "Progress" });
  const text = h("span", {});
  const cancel = button("Cancel", null, () => project.cancel(), { class: "button small" });
  const node = h("div", { class: "progress", hidden: true }, text, meter, cancel);
  const render = () => {
    const { done, total, text: what } = project.work;
    node.hidden = !total;
    meter.value = total ? done / total : 0;
    text.textContent = `${what}: ${done} of ${total}`;
  };
  project.addEventListener("progress", render);
  return node;
}

function chooseEmbedding(project) {
  const list = h("ul", { class: "embeddings" });
  const box = dialog("What it sees with", h("p", { class: "soft" }, "An embedding turns an image into numbers. Try another on your images and compare what it would get right."), list);
  const render = () => {
    const { options, active, chosen } = project.state.embedding;
    list.replaceChildren(
      ...options.map(({ name, title, estimate }) => {
        const known = estimate && estimate.accuracy !== null;
        return h(
          "li",
          { class: name === active ? "chosen" : "" },
          h("div", {}, h("strong", {}, name), h("span", { class: "soft" }, title)),
          h("span", { class: "figure" }, known ? percent(estimate.accuracy, 1) : "–", h("small", {}, known ? ` ${percent(estimate.low)} to ${percent(estimate.high)}` : " not tried")),
          name === active
            ? h("span", { class: "tag" }, "in use")
            : h(
                "span",
                { class: "row" },
                button("Try", null, async () => (await project.act("compare", { name })) && toast(`Looking at your images with ${name}.`), { class: "button small", "aria-label": `Try ${name}` }),
                button(name === chosen ? "Switching" : "Use", null, () => project.act("embedding", { name }), { class: "button small primary", disabled: name === chosen, "aria-label": `Use ${name}` }),
              ),
        );
      }),
    );
  };
  render();
  project.addEventListener("change", render);
  box.addEventListener("close", () => project.removeEventListener("change", render));
}
