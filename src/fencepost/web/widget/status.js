// The status document of one pipeline, asked for once for all elements of the page that show it.

const POLL = { idle: 10_000, active: 1_500, idleLive: 60_000, activeLive: 5_000, signedOut: 60_000 };
const REQUEST_TIMEOUT = 5_000;
const SHORTEST_BETWEEN = 500; // between two requests, however many events there are
const SHARED_FOR = 1_500; // the service answers with what it read up to a second ago: an event may be ahead of that
const BELIEVED_FOR = 15_000; // without news the last status counts so long; then nothing blocks any more

class Status {
  static #known = new Map();

  static of(base, job, live) {
    const name = JSON.stringify([base, job, live]);
    if (!Status.#known.has(name)) Status.#known.set(name, new Status(base, job, live));
    return Status.#known.get(name);
  }

  document = null; // the last one
  offset = 0; // the server's clock less ours, in milliseconds
  answered = false; // else the document is the page's own, which may be old
  failing = false;
  signedOut = false;
  #believedAt = -Infinity;
  #base;
  #job;
  #live; // null: poll only
  #views = new Set();
  #tag = null;
  #asking = null;
  #lastAsked = -Infinity;
  #heardAt = -Infinity; // of the last change
  #timer = null;

  constructor(base, job, live) {
    this.#base = base;
    this.#job = job;
    this.#live = live ? Live.of(base) : null;
  }

  join(view, first) {
    if (this.#views.size === 0) document.addEventListener("visibilitychange", this.#woken);
    this.#views.add(view);
    if (first && this.document === null) {
      this.document = first;
      this.#believedAt = performance.now();
    }
    if (this.#views.size > 1) return;
    this.refresh();
  }

  leave(view) {
    this.#views.delete(view);
    if (this.#views.size > 0) return;
    document.removeEventListener("visibilitychange", this.#woken);
    this.#live?.leave(this.#soon);
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.document = this.#tag = null;
    this.answered = this.failing = this.signedOut = false;
  }

  /** Whether the last document still counts. */
  get believed() { return this.document !== null && !(this.failing && performance.now() - this.#believedAt > BELIEVED_FOR); }

  now() { return Date.now() + this.offset; }

  async refresh() {
    clearTimeout(this.#timer);
    if (this.#asking || document.hidden) return;
    this.#lastAsked = performance.now();
    const asking = this.#asking = new AbortController();
    const limit = setTimeout(() => asking.abort(), REQUEST_TIMEOUT);
    let changed = false;
    try {
      changed = await this.#ask(asking.signal);
      this.failing = false;
      this.#believedAt = performance.now();
    } catch {
      this.failing = true; // shown by the elements, and asked again soon
    } finally {
      clearTimeout(limit);
      this.#asking = null;
    }
    if (this.#views.size === 0) return;
    for (const view of this.#views) view(changed);
    const heard = this.#heardAt + SHARED_FOR - performance.now(); // what it told of may be missing in this answer
    this.#after(heard > 0 ? heard : this.#interval());
  }

  async #ask(signal) {
    // Asked with our own tag, not through the browser's cache: that would hand out an old `now` as a new one.
    const headers = { Accept: "application/json", ...(this.#tag ? { "If-None-Match": this.#tag } : {}) };
    const url = new URL("api/system/pipeline_status", this.#base);
    url.search = new URLSearchParams({ ...(this.#job ? { job: this.#job } : {}), quiet: "1" });
    const answer = await fetch(url, { headers, signal, cache: "no-store" });
    if (answer.status === 304) return false;
    this.signedOut = answer.status === 204; // in place of 401, which a browser would write into its console
    if (this.signedOut) {
      this.document = this.#tag = null;
      this.#live?.leave(this.#soon);
      return false;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const status = await answer.json();
    if (typeof status !== "object" || status === null || !("status" in status)) throw new Error("no status document");
    this.#tag = answer.headers.get("ETag");
    const changed = !this.answered || JSON.stringify({ ...status, now: 0 }) !== JSON.stringify({ ...this.document, now: 0 });
    this.document = status;
    this.answered = true;
    if (status.now) this.offset = Date.parse(status.now) - Date.now();
    this.#live?.join(this.#soon, this.#job || status.job_id || "");
    return changed;
  }

  #interval() {
    const live = this.#live?.alive && !this.failing;
    const active = this.document?.status === "running";
    const usual = this.signedOut ? POLL.signedOut : active ? (live ? POLL.activeLive : POLL.active) : live ? POLL.idleLive : POLL.idle;
    return usual * (0.9 + 0.2 * Math.random()); // many pages must not ask in step
  }

  #after(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), milliseconds);
  }

  #soon = () => {
    this.#heardAt = performance.now();
    this.#after(Math.max(50, this.#lastAsked + SHORTEST_BETWEEN - this.#heardAt));
  };

  #woken = () => { if (!document.hidden) this.refresh(); };
}
