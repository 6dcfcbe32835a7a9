// A tray to try it: one image or the live camera; probabilities, "none of these", and the nearest examples.
import { frame, watch } from "./camera.js";
import { button, h, hue, icon, percent, toast } from "./dom.js";
import { chosenFiles, dropZone } from "./files.js";

const SHOWN = 3;

export function tray(project) {
  let current = null;
  let question = null;
  let learnt = -1;
  let live = null;
  let address = null;
  let asked = 0;
  const stage = h("div", { class: "stage" });
  const verdict = h("div", { class: "verdict", "aria-live": "polite" });
  const reasons = h("div", { class: "verdict" });
  const slider = h("input", { type: "range", min: "0", step: "1", id: "reject" });
  const caption = h("span", { class: "soft" });
  const strict = h("div", { class: "strict" }, h("label", { for: "reject" }, "None of these"), slider, caption);
  const camera = button("Camera", "camera", () => (live ? stop() : begin()), { class: "button small" });
  const node = h(
    "section",
    { class: "tray card", "aria-label": "Try it" },
    h("header", {}, h("h2", {}, "Try it"), h("span", { class: "grow" }), button("Choose", "plus", () => chosenFiles(false, ([entry]) => test(entry.file, entry.name)), { class: "button small", "aria-label": "Choose an image to try" }), camera),
    stage,
    verdict,
    strict,
    reasons,
  );

  const idle = () => h("div", { class: "drop-hint" }, project.state.estimate ? "Drop or paste an image it has not seen" : "Here you try it, once it knows two classes");

  async function test(file, name = "image") {
    stop();
    display(file, name);
    await ask(file, name);
  }

  function display(file, name) {
    if (address) URL.revokeObjectURL(address);
    address = URL.createObjectURL(file);
    stage.replaceChildren(h("img", { src: address, alt: `The image to try: ${name}` }));
  }

  /** Ask about an image; an answer that comes after the next question is left out. */
  async function ask(file, name) {
    const mine = ++asked;
    let found = null;
    question = { file, name };
    learnt = project.state.learnt;
    try {
      found = { file, name, ...(await project.try(file, name)) };
    } catch (error) {
      if (!live) toast(error.message, "bad");
    }
    if (mine !== asked) return;
    if (!found) question = null;
    current = found;
    show();
  }

  async function begin() {
    if (!project.state.estimate) return toast("Show it images of at least two classes first.");
    let view;
    try {
      view = await watch();
    } catch (error) {
      return toast(error.message, "bad");
    }
    live = view;
    camera.classList.add("on");
    camera.lastElementChild.textContent = "Stop";
    stage.replaceChildren(view.video);
    while (live === view) {
      await ask(await frame(view.video), "camera.jpg");
      await new Promise((done) => setTimeout(done, 120));
    }
  }

  function stop() {
    if (!live) return;
    live.stop();
    live = null;
    camera.classList.remove("on");
    camera.lastElementChild.textContent = "Camera";
    if (current) display(current.file, current.name);
    else stage.replaceChildren(idle());
    show();
  }

  function show() {
    if (!current) {
      verdict.replaceChildren();
      reasons.replaceChildren();
      return;
    }
    const { shares, thresholds } = project.state.rejection;
    const threshold = thresholds[Number(slider.value)];
    const foreign = typeof threshold === "number" && current.unknown > threshold;
    const [best] = current.answers;
    const bars = current.answers.slice(0, SHOWN).map(({ label, probability }) =>
      h("li", { vars: { ...hue(project.order.get(label) ?? 0), "--share": probability } }, h("span", { class: "name" }, h("i", { class: "dot" }), h("span", {}, label)), h("span", { class: "track", "aria-hidden": "true" }, h("i", {})), h("span", { class: "count" }, percent(probability))),
    );
    const near = current.nearest.filter(({ id }) => project.items.has(id)).map(({ id, label }) => h("li", {}, h("img", { src: project.small(id), alt: `Example of ${label}`, title: label, vars: hue(project.order.get(label) ?? 0) })));
    const teach = project.state.classes.slice(0, 9).map((each, index) =>
      h("button", { type: "button", class: "button small move", vars: hue(index), "aria-label": `Teach: it is ${each.name}`, on: { click: () => project.upload([{ file: current.file, name: current.name, label: each.name }]) } }, h("i", { class: "dot" }), h("span", {}, each.name)),
    );
    verdict.replaceChildren(
      h("p", { class: foreign ? "answer foreign" : "answer", id: "answer" }, foreign ? "None of these" : best.label, h("span", { class: "soft" }, foreign ? ` nearest is ${best.label}` : ` ${percent(best.probability)}`)),
      h("ul", { class: foreign ? "bars faded" : "bars" }, ...bars),
    );
    reasons.replaceChildren(
      ...[near.length ? h("div", {}, h("h3", {}, "Nearest examples"), h("ul", { class: "near" }, ...near)) : null,
        live ? null : h("div", {}, h("h3", {}, "Teach it"), h("div", { class: "moves" }, ...teach)),
      ].filter(Boolean),
    );
  }

  slider.addEventListener("input", () => {
    describe();
    show();
  });
  slider.addEventListener("change", () => project.act("reject", { share: project.state.rejection.shares[Number(slider.value)] }));
  const describe = () => {
    const share = project.state.rejection.shares[Number(slider.value)];
    const text = share ? `calls about ${percent(share)} of known images unknown` : "off: every image gets a class";
    caption.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };

  dropZone(project, node, () => null);
  node.addEventListener(
    "drop",
    async (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      node.classList.remove("over");
      const [file] = event.dataTransfer.files;
      if (file) await test(file, file.name);
    },
    true,
  );

  const render = () => {
    const { shares, share, thresholds } = project.state.rejection;
    slider.max = String(shares.length - 1);
    if (document.activeElement !== slider) slider.value = String(Math.max(0, shares.indexOf(share)));
    strict.hidden = !thresholds.length;
    describe();
    if (!address && !live) stage.replaceChildren(idle());
    // not the image of the last answer: a newer one may be on its way
    if (!live && question && project.state.learnt !== learnt && project.state.estimate) ask(question.file, question.name);
  };
  return { node, render, test };
}
