// One event stream for all pages of this browser that show the same service, and all elements on them.
//
// Visible pages ask for a lock. The one that has it holds the stream, and passes on what it hears; a hidden page lets go
// of the lock, so the stream is always in a page whose timers run. Events only say when to ask for the status. A stream
// whose machine slept, or whose proxy forgot it, looks open for ever: one without a sign of life is opened anew.
// Web Locks need https or localhost. Without them each page has a stream of its own.

const SILENT = 15_000; // three beats of the service
const RECONNECT = { first: 2_000, most: 60_000 };

class Live {
  static #known = new Map();

  static of(base) {
    if (!Live.#known.has(base)) Live.#known.set(base, new Live(base));
    return Live.#known.get(base);
  }

  #base;
  #listeners = new Map(); // function → job; "" is any
  #others = new Set(); // jobs that other pages listen for
  #channel = null;
  #events = null;
  #asked = new Set(); // jobs of the open stream
  #heardAt = -Infinity;
  #retries = 0;
  #polled = false; // each answer ends at once
  #leave = null; // lets go of the lock, or stops waiting for it
  #timers = {};

  constructor(base) {
    this.#base = base;
    document.addEventListener("visibilitychange", () => this.#update());
  }

  /** Whether changes would be heard of. */
  get alive() { return Math.abs(Date.now() - this.#heardAt) < SILENT; }

  join(listener, job) {
    if (this.#listeners.get(listener) === job) return;
    this.#listeners.set(listener, job);
    this.#update();
    this.#channel?.postMessage({ kind: "wants", jobs: [job] });
    this.#widen();
  }

  leave(listener) {
    this.#listeners.delete(listener);
    this.#update();
  }

  #update() {
    const wanted = this.#listeners.size > 0 && !document.hidden;
    if (wanted && this.#leave === null) this.#start();
    if (!wanted && this.#leave !== null) this.#stop();
  }

  #start() {
    const name = `fencepost ${this.#base}`;
    this.#channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(name) : null;
    if (this.#channel) this.#channel.onmessage = ({ data }) => this.#told(data);
    this.#timers.watchdog = setInterval(() => this.#watch(), 1_000);
    const waiting = new AbortController();
    const held = new Promise((release) => { this.#leave = () => { waiting.abort(); release(); }; });
    if (!navigator.locks) { this.#open(); return; }
    const lead = () => {
      if (waiting.signal.aborted) return undefined;
      this.#channel?.postMessage({ kind: "who" });
      this.#open();
      return held;
    };
    navigator.locks.request(name, { signal: waiting.signal }, lead).catch(() => {}); // stopped waiting
  }

  #stop() {
    clearInterval(this.#timers.watchdog);
    clearTimeout(this.#timers.open);
    this.#close();
    this.#channel?.close();
    this.#channel = null;
    this.#leave();
    this.#leave = null;
    this.#others.clear();
    this.#heardAt = -Infinity;
  }

  #close() {
    this.#events?.close();
    this.#events = null;
  }

  #jobs() { return new Set([...this.#listeners.values(), ...this.#others]); }

  #open() {
    clearTimeout(this.#timers.open);
    this.#close();
    this.#asked = this.#jobs();
    const url = new URL("api/v1/events", this.#base);
    url.search = new URLSearchParams({ kinds: "fire,job,store,beat", quiet: "1" });
    if (!this.#asked.has("")) for (const job of this.#asked) url.searchParams.append("job", job);
    const events = this.#events = new EventSource(url);
    this.#heardAt = Date.now(); // it has as long to open as to send something
    for (const kind of ["hello", "fire", "job", "store", "reset", "beat"]) {
      events.addEventListener(kind, ({ data }) => this.#heard(kind, data));
    }
    events.onerror = () => {
      if (this.#heardAt !== -Infinity && !this.#polled) this.#pass({ kind: "lost" }); // whatever ended it may have changed the status
      if (events.readyState !== EventSource.CLOSED) return; // the browser connects anew by itself
      const wait = Math.min(RECONNECT.most, RECONNECT.first * 2 ** this.#retries++);
      this.#timers.open = setTimeout(() => this.#open(), wait * (0.75 + 0.5 * Math.random()));
    };
  }

  /** Another stream, if this one leaves something out that somebody listens for. */
  #widen() {
    if (this.#events === null || this.#asked.has("")) return;
    if ([...this.#jobs()].some((job) => !this.#asked.has(job))) {
      clearTimeout(this.#timers.open);
      this.#timers.open = setTimeout(() => this.#open(), 50); // several elements join one after the other
    }
  }

  #heard(kind, data) {
    this.#retries = 0;
    let job = "";
    try {
      const about = JSON.parse(data);
      job = about.job_id ?? "";
      this.#polled = about.polled ?? this.#polled;
    } catch { /* then it may concern anybody */ }
    this.#pass({ kind, job });
  }

  #pass(news) {
    this.#channel?.postMessage(news);
    this.#told(news);
  }

  #told({ kind, job = "", jobs = [] }) {
    if (kind === "wants") { for (const each of jobs) this.#others.add(each); this.#widen(); return; }
    if (kind === "who") { this.#channel.postMessage({ kind: "wants", jobs: [...this.#listeners.values()] }); return; }
    if (kind === "lost") this.#heardAt = -Infinity;
    else this.#heardAt = Date.now();
    if (kind === "beat") return;
    for (const [listener, wanted] of this.#listeners) if (!job || !wanted || job === wanted) listener();
  }

  #watch() {
    if (this.alive || this.#heardAt === -Infinity) return;
    this.#heardAt = -Infinity;
    for (const listener of this.#listeners.keys()) listener();
    if (this.#events !== null) this.#open();
  }
}
