// The start page: all projects, and a new one.
import { button, dialog, h, icon, iconButton, images, toast } from "./dom.js";
import { call } from "./project.js";
import { themeButton } from "./theme_button.js";

export async function start(root) {
  document.title = "Projects · handful studio";
  const list = h("ul", { class: "shelf" });
  const name = h("input", { id: "new-name", class: "field", placeholder: "Birds in the garden", maxlength: "80", autocomplete: "off" });
  const form = h(
    "form",
    { class: "new-project" },
    h("label", { for: "new-name" }, "A new project"),
    h("div", { class: "row" }, name, h("button", { class: "button primary", type: "submit" }, icon("plus"), h("span", {}, "Create"))),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const made = await call("/api/projects", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ name: name.value.trim() || "Untitled" }),
      });
      location.href = `/p/${made.id}`;
    } catch (error) {
      toast(error.message, "bad");
    }
  });
  root.replaceChildren(
    h("header", { class: "bar" }, h("span", { class: "brand" }, h("img", { src: "/static/icon.svg", alt: "" }), "handful studio"), h("span", { class: "grow" }), themeButton()),
    h(
      "main",
      { id: "main", class: "start" },
      h("div", { class: "hero" }, h("h1", {}, "Show it a few images."), h("p", {}, "It learns at once, tells you how good it is, and nothing leaves this machine.")),
      form,
      h("h2", {}, "Your projects"),
      list,
    ),
  );
  name.focus();
  await show(list);
}

async function show(list) {
  let projects = [];
  try {
    projects = await call("/api/projects");
  } catch (error) {
    toast(error.message, "bad");
  }
  if (!projects.length) {
    list.replaceChildren(h("li", { class: "none" }, "None yet. Create one above, or start with a folder: ", h("code", {}, "handful studio FOLDER")));
    return;
  }
  list.replaceChildren(...projects.map((each) => card(each, list)));
}

function card(each, list) {
  const base = `/api/projects/${each.identity}`;
  const shown = each.shown.map((id) => h("img", { src: `${base}/small/${id}.jpg`, alt: "", loading: "lazy" }));
  const remove = () => {
    const gone = async () => {
      try {
        await call(base, { method: "DELETE" });
        box.close();
        await show(list);
      } catch (error) {
        toast(error.message, "bad");
      }
    };
    const box = dialog(
      "Delete this project?",
      h("p", {}, `“${each.name}” and its ${images(each.images)} will be deleted from this machine. This cannot be undone.`),
      h("footer", {}, button("Keep it", null, () => box.close()), button("Delete for good", "trash", gone, { class: "button danger" })),
    );
  };
  const when = new Date(1000 * each.changed).toLocaleDateString(undefined, { day: "numeric", month: "long", year: "numeric" });
  return h(
    "li",
    { class: "project" },
    h(
      "a",
      { href: `/p/${each.identity}` },
      h("div", { class: "mosaic" }, shown.length ? shown : icon("grid")),
      h("strong", {}, each.name),
      h("span", { class: "soft" }, `${each.classes === 1 ? "1 class" : `${each.classes} classes`}, ${images(each.images)}`),
      h("span", { class: "soft" }, when),
    ),
    iconButton(`Delete ${each.name}`, "trash", remove, { class: "button round quiet" }),
  );
}
