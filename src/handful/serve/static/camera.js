// The webcam: a button that records while it is held, and frames for the tray.
import { h, icon, toast } from "./dom.js";

const EVERY = 250;
const SIDE = 480;
const WISHES = { video: { width: { ideal: 640 }, height: { ideal: 480 } }, audio: false };
/** The promise of one stream for all who watch, so that two who begin together do not open the camera twice. */
let stream = null;
let users = 0;

async function release() {
  users -= 1;
  if (users) return;
  const opened = stream;
  stream = null;
  for (const track of (await opened?.catch(() => null))?.getTracks() ?? []) track.stop();
}

/** A playing video of the webcam; call `stop` when done, so that its light goes out. */
export async function watch() {
  const video = h("video", { muted: true, playsinline: true, "aria-label": "The camera" });
  video.muted = true;
  users += 1;
  try {
    stream ??= navigator.mediaDevices.getUserMedia(WISHES);
    video.srcObject = await stream;
    await video.play();
  } catch (error) {
    release();
    throw new Error(error.name === "NotAllowedError" ? "The browser was not allowed to use the camera." : "No camera was found.");
  }
  let done = false;
  const stop = () => {
    if (done) return;
    done = true;
    video.srcObject = null;
    release();
  };
  return { video, stop };
}

/** The middle square of the video, as a JPEG. */
export function frame(video) {
  const side = Math.min(video.videoWidth, video.videoHeight);
  const canvas = h("canvas", { width: SIDE, height: SIDE });
  canvas.getContext("2d").drawImage(video, (video.videoWidth - side) / 2, (video.videoHeight - side) / 2, side, side, 0, 0, SIDE, SIDE);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.9));
}

/** The button of a class: four images per second for as long as it is held, by pointer or key. */
export function camera(project, label) {
  const text = h("span", {}, "Hold to record");
  const node = h("button", { type: "button", class: "button record", "aria-label": `Hold to record images of ${label}` }, icon("camera"), text);
  let held = false;
  const begin = async () => {
    if (held) return;
    held = true;
    node.classList.add("on");
    let view;
    try {
      view = await watch();
    } catch (error) {
      toast(error.message, "bad");
      return end();
    }
    const preview = h("div", { class: "preview" }, view.video);
    node.closest(".column").append(preview);
    const batch = crypto.randomUUID();
    let count = 0;
    while (held) {
      const file = await frame(view.video);
      count += 1;
      text.textContent = `Recording ${count}`;
      const stamp = new Date().toISOString().slice(0, 19).replaceAll(":", ".");
      project.upload([{ file, name: `camera ${stamp} ${count}.jpg`, label }], batch);
      await new Promise((done) => setTimeout(done, EVERY));
    }
    view.stop();
    preview.remove();
    text.textContent = "Hold to record";
  };
  const end = () => {
    held = false;
    node.classList.remove("on");
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    node.setPointerCapture(event.pointerId);
    begin();
  });
  for (const type of ["pointerup", "pointercancel", "blur"]) node.addEventListener(type, end);
  node.addEventListener("keydown", (event) => [" ", "Enter"].includes(event.key) && !event.repeat && (event.preventDefault(), begin()));
  node.addEventListener("keyup", (event) => [" ", "Enter"].includes(event.key) && end());
  node.addEventListener("contextmenu", (event) => event.preventDefault());
  return node;
}
