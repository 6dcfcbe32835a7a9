// The project as the server knows it: one state, changed by actions and uploads, and told to all who listen.
import { images, toast } from "./dom.js";

const AT_ONCE = 3;
/** How many times as long as it took to follow a change the page waits before the next: it is idle most of the time. */
const PAUSE = 3;

export async function call(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The studio does not answer. Start it again: handful studio");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `The studio answered ${answer.status}.`);
  return body;
}

export class Project extends EventTarget {
  constructor(id) {
    super();
    this.base = `/api/projects/${id}`;
    this.state = null;
    this.selected = new Set();
    this.progress = { done: 0, total: 0, text: "" };
    this.queue = [];
    this.sending = new Map();
    this.sent = 0;
    this.alive = true;
  }

  async open() {
    this.take(await call(this.base));
    const events = new EventSource(`${this.base}/events`);
    events.addEventListener("changed", (event) => this.refresh(JSON.parse(event.data).revision));
    events.addEventListener("progress", (event) => this.advance(JSON.parse(event.data)));
    events.addEventListener("failed", (event) => toast(JSON.parse(event.data).message, "bad"));
    events.addEventListener("open", () => {
      if (!this.alive) this.refresh();
      this.setAlive(true);
    });
    events.addEventListener("error", () => this.setAlive(false));
  }

  setAlive(alive) {
    if (alive === this.alive) return;
    this.alive = alive;
    this.dispatchEvent(new Event("alive"));
  }

  take(state) {
    if (this.state && state.session === this.state.session && state.revision < this.state.revision) return;
    if (state.since > this.state?.revision) return this.refresh();
    this.state = { ...state, items: this.merged(state) };
    this.items = new Map(this.state.items.map((item) => [item.id, item]));
    this.order = new Map(state.classes.map((each, index) => [each.name, index]));
    for (const id of this.selected) if (!this.items.has(id)) this.selected.delete(id);
    this.dispatchEvent(new Event("change"));
  }

  /** All images, of which those that did not change since the last state stay the same objects. */
  merged({ since, items, gone }) {
    if (since === undefined) return items;
    const all = new Map(this.items);
    for (const id of gone) all.delete(id);
    for (const item of items) all.set(item.id, item);
    return [...all.values()].sort((a, b) => a.n - b.n || (a.id < b.id ? -1 : 1));
  }

  /** What tells the server which state this page has seen. */
  get seen() {
    return { session: this.state.session, since: this.state.revision };
  }

  /** Ask for the state again: never twice at once, and once more if it changed meanwhile. */
  async refresh(revision = Infinity) {
    if (this.state && revision <= this.state.revision) return;
    if (this.refreshing) {
      this.again = true;
      return;
    }
    this.refreshing = true;
    const began = performance.now();
    try {
      this.take(await call(`${this.base}?${new URLSearchParams(this.seen)}`));
    } catch {
      // the stream of events says whether the studio is alive
    } finally {
      this.refreshing = false;
    }
    if (this.again) {
      this.again = false;
      setTimeout(() => this.refresh(), Math.max(60, PAUSE * (performance.now() - began)));
    }
  }

  /** Ask for a change and take over the state after it; null if it was refused. */
  async act(action, body = {}) {
    try {
      const began = performance.now();
      const state = await call(`${this.base}/do`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ action, ...body, ...this.seen }),
      });
      const answered = performance.now();
      this.take(state);
      performance.measure(`handful ${action}`, { start: began, end: performance.now() });
      performance.measure(`handful ${action} drawn`, { start: answered, end: performance.now() });
      return state;
    } catch (error) {
      toast(error.message, "bad");
      return null;
    }
  }

  small(id) {
    return `${this.base}/small/${id}.jpg`;
  }

  large(id) {
    return `${this.base}/large/${id}.jpg`;
  }

  label(ids, label) {
    return this.act("label", { items: [...ids], label });
  }

  /** Send images: `[{ file, name, label }]`, a null label for the pile. They are one step of the history. */
  upload(entries, batch = crypto.randomUUID()) {
    for (const entry of entries) this.queue.push({ ...entry, batch });
    this.advance();
    while (this.sending.size < AT_ONCE && this.queue.length) this.sendNext();
  }

  sendNext() {
    const entry = this.queue.shift();
    this.sending.set(entry, this.send(entry));
  }

  async send(entry) {
    const query = new URLSearchParams({ name: entry.name, batch: entry.batch });
    if (entry.label !== null) query.set("label", entry.label);
    try {
      const answer = await call(`${this.base}/images?${query}`, { method: "POST", body: entry.file });
      if (answer.known && answer.known !== entry.label) toast(`${entry.name} was in ${answer.known} already.`);
    } catch (error) {
      toast(error.message, "bad");
    }
    this.sending.delete(entry);
    this.sent += 1;
    if (this.queue.length) this.sendNext();
    else if (!this.sending.size) this.sent = 0;
    this.advance();
  }

  advance(progress) {
    if (progress) this.progress = progress;
    this.dispatchEvent(new Event("progress"));
  }

  /** Images sent and embedded, of all that were asked for. */
  get work() {
    const waiting = this.queue.length + this.sending.size;
    const { done, total, text } = this.progress;
    if (!waiting) return { done, total, text };
    return { done: this.sent, total: this.sent + waiting, text: "Adding images" };
  }

  /** Send no more images, and let the server leave out those that it has not looked at. */
  async cancel() {
    const unsent = this.queue.length;
    this.queue = [];
    await Promise.all(this.sending.values());
    const state = await this.act("cancel");
    const count = unsent + (state?.gone?.length ?? 0);
    if (state) toast(count ? `Stopped. ${images(count)} left out.` : "Stopped.");
  }

  try(file, name) {
    return call(`${this.base}/try?${new URLSearchParams({ name })}`, { method: "POST", body: file });
  }
}
