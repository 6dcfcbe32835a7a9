// Take it away: files, and the lines that use them.
import { button, dialog, h, icon, toast } from "./dom.js";

export function takeAway(project) {
  if (!project.state.estimate) return toast("There is nothing to take away yet: show it images of at least two classes.");
  const file = project.state.file;
  const download = (kind, title, text) =>
    h("li", {}, h("div", {}, h("strong", {}, title), h("span", { class: "soft" }, text)), button("Download", "down", () => fetchFile(project, kind), { "aria-label": `Download ${title}` }));
  dialog(
    "Take it away",
    h(
      "ul",
      { class: "downloads" },
      download("handful", `${file}.handful`, "Everything in one file: classes, examples and, where it is small, the embedding. It goes on learning anywhere."),
      download("onnx", `${file}.onnx`, "Embedding and classifier as one graph, for phones, browsers and other languages."),
      download("html", `${file}.html`, "A page that classifies in any browser, with no server and no network: under 1 MB for drawings, 9 or 22 MB for photographs."),
    ),
    h("h3", {}, "From Python"),
    snippet(["from handful import FewShotClassifier", `clf = FewShotClassifier.load("${file}.handful")`, 'print(clf.predict(["photo.jpg"]))']),
    h("h3", {}, "Over HTTP"),
    snippet([`handful serve ${file}.handful`, `curl -F image=@photo.jpg http://127.0.0.1:8000/models/${file}/predict`]),
  );
}

async function fetchFile(project, kind) {
  try {
    const answer = await fetch(`${project.base}/export/${kind}`);
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || `The studio answered ${answer.status}.`);
    const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? `model.${kind}`;
    const address = URL.createObjectURL(await answer.blob());
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  } catch (error) {
    toast(error.message, "bad");
  }
}

function snippet(lines) {
  const text = lines.join("\n");
  const copy = h("button", { type: "button", class: "button round copy", "aria-label": "Copy these lines", title: "Copy", on: { click: () => navigator.clipboard.writeText(text).then(() => toast("Copied."), () => toast("The browser did not allow copying.", "bad")) } }, icon("copy"));
  return h("div", { class: "snippet" }, h("pre", { tabindex: "0" }, text), copy);
}
