// Images from outside: dropped files and folders, the clipboard, and the file chooser.
import { toast } from "./dom.js";

/** Let `node` take dropped images; `labelOf` gives the class for them, or null for the pile. */
export function dropZone(project, node, labelOf) {
  let depth = 0;
  const over = (on) => node.classList.toggle("over", on);
  const wanted = (event) => [...event.dataTransfer.types].some((type) => type === "Files" || type === "application/x-handful");
  node.addEventListener("dragenter", (event) => {
    if (!wanted(event)) return;
    event.stopPropagation();
    depth += 1;
    over(true);
  });
  node.addEventListener("dragleave", (event) => {
    event.stopPropagation();
    depth = Math.max(0, depth - 1);
    over(depth > 0);
  });
  node.addEventListener("dragover", (event) => {
    if (!wanted(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  node.addEventListener("drop", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    over(false);
    document.body.classList.remove("dragging");
    const moved = event.dataTransfer.getData("application/x-handful");
    if (moved) {
      const label = labelOf();
      const ids = JSON.parse(moved);
      if (ids.some((id) => project.items.get(id)?.label !== label)) await project.label(ids, label);
      return;
    }
    const found = await dropped(event.dataTransfer);
    if (!found.length) return;
    const label = labelOf();
    const foldered = label === null && node.classList.contains("board") ? folders(found) : found;
    project.upload(foldered.map((entry) => ({ ...entry, label: label ?? entry.label ?? null })));
  });
  const here = () => (project.place = node);
  node.addEventListener("pointerenter", here);
  node.addEventListener("focusin", here);
}

/** All image files of a drop, those inside folders included, each with the folders it was in. */
export async function dropped(transfer) {
  const entries = [...transfer.items].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  const found = (await Promise.all(entries.map((entry) => (entry ? walk(entry, []) : [])))).flat();
  const pictures = found.filter(({ file }) => isImage(file));
  const rest = found.length - pictures.length;
  if (rest) toast(rest === 1 ? "1 file is not an image and was left out." : `${rest} files are not images and were left out.`);
  const place = ({ path, name }) => [...path, name].join("/");
  return pictures.sort((a, b) => place(a).localeCompare(place(b), undefined, { numeric: true }));
}

async function walk(entry, path) {
  if (entry instanceof File) return [{ file: entry, name: entry.name, path }];
  if (entry.isFile) {
    const file = await new Promise((done, fail) => entry.file(done, fail)).catch(() => null);
    return file && !file.name.startsWith(".") ? [{ file, name: file.name, path }] : [];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail)).catch(() => []);
    if (!some.length) return found.flat();
    found.push(...(await Promise.all(some.map((each) => walk(each, [...path, entry.name])))));
  }
}

/** The class of a file in folders: the folder in the dropped folder or, if that holds images itself, the dropped one. */
function folders(found) {
  const flat = new Set(found.filter(({ path }) => path.length === 1).map(({ path }) => path[0]));
  return found.map((entry) => {
    const [outer, inner] = entry.path;
    return { ...entry, label: outer === undefined ? null : flat.has(outer) || inner === undefined ? outer : inner };
  });
}

const isImage = (file) => file.type.startsWith("image/") || /\.(avif|bmp|gif|heic|heif|jpe?g|png|tiff?|webp)$/i.test(file.name);

export function chosenFiles(multiple, then) {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", accept: "image/*,.heic,.heif,.avif", multiple });
  input.addEventListener("change", () => input.files.length && then([...input.files].map((file) => ({ file, name: file.name }))));
  input.click();
}

/** Pasting goes to the class or tray that was touched last; a drop beside all places changes nothing. */
export function listen(project, { tray }) {
  addEventListener("paste", (event) => {
    if (event.target.closest?.("dialog")) return;
    const files = [...event.clipboardData.files].filter(isImage);
    if (!files.length) return;
    event.preventDefault();
    const entries = files.map((file) => ({ file, name: file.name || "pasted" }));
    const label = project.place?.dataset.class;
    if (label !== undefined) project.upload(entries.map((entry) => ({ ...entry, label })));
    else if (project.place?.classList.contains("pile") || !project.state.estimate) project.upload(entries.map((entry) => ({ ...entry, label: null })));
    else tray.test(entries[0].file, entries[0].name);
  });
  for (const type of ["dragover", "drop"]) addEventListener(type, (event) => event.preventDefault());
}
