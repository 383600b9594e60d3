// <fencepost-status>: how fresh the data is, what runs now, and a dialog while the application is blocked.
//
//   <script type="module" src="/fencepost/widget.js"></script>
//   <fencepost-status></fencepost-status>
//
// Attributes, texts and colours: docs/widget.md. Everything from the server is set as text, never as markup.

const POLL = { idle: 10_000, active: 1_500, idleLive: 60_000, activeLive: 5_000 };
const REQUEST_TIMEOUT = 5_000;
const SHORTEST_BETWEEN = 500; // between two requests, however many events there are
const OVERLAY_AFTER = 300; // a phase that blocks for less is not worth a flash
const BELIEVED_FOR = 15_000; // without news the last status counts so long; then nothing blocks any more
const RECONNECT = { first: 2_000, most: 60_000 };

const TEXTS = {
  updated: "Data updated: {time}",
  none: "No data yet",
  running: "Update running in the background",
  blocking: "Maintenance in progress",
  failed: "Last update failed. Data from {time}",
  failedNone: "Last update failed. No data yet",
  unknown: "Status unavailable",
  unknownSince: "Status unavailable. Data from {time}",
  nextRun: "Next run",
  nextRunAt: "Next run: {time} ({distance})",
  dataFrom: "Data from {time}",
  title: "Maintenance in progress",
  explanation: "The data is being updated. This page is available again in a moment.",
  phase: "Step",
  elapsed: "Elapsed",
  remaining: "Remaining",
  about: "about {length}",
  usually: "usually {low} to {high}",
  longer: "longer than usual",
  soon: "any moment",
  progress: "Progress",
  over: "Maintenance is over",
  now: "now",
  ahead: "in {length}",
  seconds: "{n}\u00a0s",
  minutes: "{n}\u00a0min",
  hours: "{n}\u00a0h",
  days: "{n}\u00a0d",
};

const SHEET = new CSSStyleSheet(); // not a <style>: pages with a strict content security policy allow none
SHEET.replaceSync(`
  :host { display: inline-flex; position: relative; align-items: center; gap: .4em; font: inherit; color: inherit;
    --ok: var(--fencepost-ok, light-dark(#1a7f37, #3fb950)); --busy: var(--fencepost-busy, light-dark(#0a66c2, #6cb6ff));
    --bad: var(--fencepost-bad, light-dark(#c0232c, #ff8079)); --quiet: var(--fencepost-quiet, light-dark(#59636e, #9aa4af));
    --surface: var(--fencepost-surface, light-dark(#fff, #1c2128)); --text: var(--fencepost-text, light-dark(#1f2328, #e6edf3));
    --line: var(--fencepost-line, light-dark(#d1d9e0, #3d444d));
    --backdrop: var(--fencepost-backdrop, light-dark(rgb(31 35 40 / 60%), rgb(1 4 9 / 75%))); }
  :host([theme=light]) { color-scheme: light; } /* else as the page declares */
  :host([theme=dark]) { color-scheme: dark; }
  :host([hidden]) { display: none; }
  .mark { inline-size: 1em; block-size: 1em; flex: none; fill: none; stroke: var(--ok); stroke-width: 2;
    stroke-linecap: round; stroke-linejoin: round; }
  [data-state=running] .mark, [data-state=blocking] .mark { stroke: var(--busy); }
  [data-state=failed] .mark { stroke: var(--bad); }
  [data-state=unknown] .mark, [data-state=none] .mark { stroke: var(--quiet); }
  .row { display: inline-flex; align-items: center; gap: .4em; }
  .info { font: inherit; color: inherit; background: none; border: 1px solid currentcolor; border-radius: 50%;
    inline-size: 1.5rem; block-size: 1.5rem; padding: 0; line-height: 1; cursor: help; flex: none; }
  .info[hidden] { display: none; }
  .info:focus-visible { outline: 2px solid var(--busy); outline-offset: 2px; }
  .tip { position: absolute; inset-block-start: calc(100% + .4rem); inset-inline-end: 0; z-index: 10;
    inline-size: max-content; max-inline-size: min(24rem, 100vw - 2.5rem); white-space: pre-line; padding: .4rem .6rem; border: 1px solid var(--line);
    border-radius: .4rem; background: var(--surface); color: var(--text); box-shadow: 0 2px 8px rgb(0 0 0 / 20%); }
  .tip[hidden] { display: none; }
  dialog { box-sizing: border-box; inline-size: min(28rem, calc(100vw - 2rem)); padding: 1.5rem; color: var(--text);
    border: 1px solid var(--line); border-radius: .75rem; background: var(--surface); line-height: 1.5; }
  dialog::backdrop { background: var(--backdrop); }
  h2 { margin: 0 0 .5rem; font-size: 1.25rem; line-height: 1.3; outline: none; }
  p { margin: 0 0 1rem; }
  .bar { block-size: .5rem; margin-block-end: 1rem; overflow: hidden; border-radius: .25rem; background: var(--line); }
  .bar div { block-size: 100%; inline-size: 40%; border-radius: inherit; background: var(--busy); }
  .bar:not([aria-valuenow]) div { animation: slide 1.8s ease-in-out infinite; }
  @keyframes slide { from { margin-inline-start: -40%; } to { margin-inline-start: 100%; } }
  @media (prefers-reduced-motion: reduce) { .bar:not([aria-valuenow]) div { animation: none; inline-size: 100%; opacity: .5; } }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
  dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
  .heard { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
`);

const MARKS = { // shapes differ, too: colour alone says nothing to many
  ok: "M3 8.5l3.2 3.2L13 5",
  running: "M8 2a6 6 0 1 1-6 6M8 4.5V8l2.5 1.5",
  blocking: "M5.5 3.5v9M10.5 3.5v9",
  failed: "M8 2 15 14H1ZM8 6.5v3.2M8 11.9v.01",
  unknown: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.4 8.6 8 9 8 9.8M8 12.8v.01",
  none: "M4 8h8",
};

class FencepostStatus extends HTMLElement {
  static observedAttributes = ["src", "job", "texts", "time-zone", "locale", "overlay", "live"];

  #status = null; // the last document
  #tag = null;
  #offset = 0; // the server's clock less ours, in milliseconds
  #heardAt = -Infinity; // when the API last answered
  #failing = false;
  #blockedSince = null;
  #shown = ""; // the state announced last
  #timers = {};
  #events = null;
  #retries = 0;
  #lastAsked = -Infinity;
  #asking = null;
  #own = {}; // texts given by code
  #parts = {};

  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    this.#build();
  }

  connectedCallback() {
    document.addEventListener("visibilitychange", this.#woken);
    this.#timers.tick = setInterval(() => this.#draw(), 1_000);
    this.#listen();
    this.refresh();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#woken);
    clearInterval(this.#timers.tick);
    clearTimeout(this.#timers.poll);
    clearTimeout(this.#timers.reconnect);
    clearTimeout(this.#timers.overlay);
    this.#events?.close();
    this.#events = null;
    this.#asking?.abort();
    if (this.#parts.dialog.open) this.#parts.dialog.close();
  }

  attributeChangedCallback(name) {
    if (!this.isConnected) return;
    if (["src", "job", "live"].includes(name)) {
      this.#tag = this.#status = null;
      this.#listen();
      this.refresh();
    }
    this.#draw();
  }

  /** Texts in place of ours; also the attribute `texts`, as JSON. */
  get texts() { return { ...TEXTS, ...this.#fromAttribute(), ...this.#own }; }
  set texts(given) { this.#own = { ...given }; this.#draw(); }

  /** The last status document; null: none yet. */
  get status() { return this.#status; }

  // --- asking ----------------------------------------------------------------------------------------------

  /** Ask now. */
  async refresh() {
    clearTimeout(this.#timers.poll);
    if (this.#asking || document.hidden) return;
    this.#lastAsked = performance.now();
    this.#asking = new AbortController();
    const limit = setTimeout(() => this.#asking?.abort(), REQUEST_TIMEOUT);
    try {
      await this.#ask(this.#asking.signal);
      this.#failing = false;
      this.#heardAt = performance.now();
    } catch {
      this.#failing = true; // shown by #draw, and asked again soon
    } finally {
      clearTimeout(limit);
      this.#asking = null;
    }
    if (!this.isConnected) return;
    this.#draw();
    this.#pollAfter(this.#interval());
  }

  async #ask(signal) {
    // Asked with our own tag, not through the browser's cache: that would hand out an old `now` as a new one.
    const headers = { Accept: "application/json", ...(this.#tag ? { "If-None-Match": this.#tag } : {}) };
    const answer = await fetch(this.#url("api/system/pipeline_status"), { headers, signal, cache: "no-store" });
    if (answer.status === 304) return;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const status = await answer.json();
    if (typeof status !== "object" || status === null || !("status" in status)) throw new Error("no status document");
    this.#tag = answer.headers.get("ETag");
    const changed = JSON.stringify({ ...status, now: 0 }) !== JSON.stringify({ ...this.#status, now: 0 });
    this.#status = status;
    if (status.now) this.#offset = Date.parse(status.now) - Date.now();
    if (changed) this.dispatchEvent(new CustomEvent("fencepost-change", { detail: status, bubbles: true, composed: true }));
  }

  #url(path) {
    const base = this.getAttribute("src") ?? new URL(".", import.meta.url).href;
    const url = new URL(path, new URL(base.endsWith("/") ? base : `${base}/`, document.baseURI));
    const job = this.getAttribute("job");
    if (job) url.searchParams.set("job", job);
    return url;
  }

  #interval() {
    const live = this.#events?.readyState === EventSource.OPEN && !this.#failing;
    const active = this.#status?.status === "running" || (this.#failing && this.#parts.dialog.open);
    const usual = active ? (live ? POLL.activeLive : POLL.active) : live ? POLL.idleLive : POLL.idle;
    return usual * (0.9 + 0.2 * Math.random()); // many pages must not ask in step
  }

  #pollAfter(milliseconds) {
    clearTimeout(this.#timers.poll);
    this.#timers.poll = setTimeout(() => this.refresh(), milliseconds);
  }

  #woken = () => {
    if (document.hidden) this.#events?.close();
    else { this.#listen(); this.refresh(); }
  };

  // --- live events: they only say when to ask ------------------------------------------------------------------

  #listen() {
    clearTimeout(this.#timers.reconnect);
    this.#events?.close();
    this.#events = null;
    if (this.getAttribute("live") === "off" || document.hidden) return;
    const events = new EventSource(this.#url("api/v1/events"));
    this.#events = events;
    const soon = () => this.#pollAfter(Math.max(50, this.#lastAsked + SHORTEST_BETWEEN - performance.now()));
    events.addEventListener("fire", (event) => { if (this.#concerns(event.data)) soon(); });
    for (const kind of ["reset", "store"]) events.addEventListener(kind, soon);
    events.onopen = () => { this.#retries = 0; };
    events.onerror = () => {
      soon(); // whatever ended the stream may have changed the status
      if (events.readyState !== EventSource.CLOSED) return; // the browser connects anew by itself
      const wait = Math.min(RECONNECT.most, RECONNECT.first * 2 ** this.#retries++);
      this.#timers.reconnect = setTimeout(() => this.#listen(), wait * (0.75 + 0.5 * Math.random()));
    };
  }

  #concerns(data) {
    const known = this.getAttribute("job") ?? this.#status?.run_id?.split(/[@!]/)[0];
    if (!known) return true;
    try {
      return JSON.parse(data).job_id === known;
    } catch {
      return true;
    }
  }

  // --- showing ---------------------------------------------------------------------------------------------

  #build() {
    const make = (tag, options = {}, ...children) => {
      const { text, ...attributes } = options;
      const element = document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      if (text !== undefined) element.textContent = text;
      element.append(...children);
      return element;
    };
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("class", "mark");
    svg.setAttribute("part", "mark");
    svg.setAttribute("aria-hidden", "true");
    const path = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
    const label = make("span", { part: "label" });
    const info = make("button", { type: "button", part: "info", class: "info", "aria-describedby": "tip", text: "i" });
    const tip = make("span", { role: "tooltip", id: "tip", class: "tip", part: "tooltip", hidden: "" });
    const title = make("h2", { id: "title", tabindex: "-1", part: "title" });
    const explanation = make("p", { id: "explanation", part: "explanation" });
    const fill = make("div");
    const bar = make("div", { role: "progressbar", class: "bar", part: "progress", "aria-valuemin": "0", "aria-valuemax": "100" }, fill);
    const facts = make("dl", { part: "facts" });
    const dialog = make(
      "dialog",
      { part: "dialog", "aria-labelledby": "title", "aria-describedby": "explanation", closedby: "none" },
      title, explanation, bar, facts,
    );
    const row = make("span", { class: "row", part: "status" }, svg, label);
    const heard = make("span", { class: "heard", "aria-live": "polite" });
    this.#parts = { row, path, label, info, tip, title, explanation, bar, fill, facts, dialog, heard };
    this.shadowRoot.adoptedStyleSheets = [SHEET];
    this.shadowRoot.append(row, info, tip, dialog, heard);
    this.#behave();
  }

  #behave() {
    const { info, tip, dialog } = this.#parts;
    const show = (visible) => { tip.hidden = !visible; };
    info.addEventListener("mouseenter", () => show(true));
    info.addEventListener("focus", () => show(true));
    info.addEventListener("click", () => show(true)); // a finger neither hovers nor always focuses
    info.addEventListener("blur", () => show(false));
    this.addEventListener("mouseleave", () => show(false));
    this.addEventListener("keydown", (event) => { if (event.key === "Escape") show(false); });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => { if (this.#blockedSince !== null && this.isConnected) this.#open(); });
  }

  #draw() {
    const state = this.#state();
    const { row, path, label } = this.#parts;
    row.dataset.state = state;
    path.setAttribute("d", MARKS[state]);
    const text = this.#labelText(state);
    if (label.textContent !== text) label.textContent = text;
    this.#drawTip(state);
    this.#drawOverlay(state === "blocking");
    if (this.#shown && this.#shown !== state) this.#announce(text);
    if (this.#status !== null || this.#failing) this.#shown = state; // before the first answer nothing has changed
  }

  #state() {
    const status = this.#status;
    const silentFor = performance.now() - this.#heardAt;
    if (status === null || (this.#failing && silentFor > BELIEVED_FOR)) return this.#failing ? "unknown" : "none";
    if (status.status === "running") return status.blocking_maintenance ? "blocking" : "running";
    if (status.status === "failed") return "failed";
    return status.data_updated_at ? "ok" : "none";
  }

  #labelText(state) {
    const texts = this.texts, at = this.#status?.data_updated_at;
    const time = at ? this.#time(at) : null;
    if (state === "ok") return fill(texts.updated, { time });
    if (state === "failed") return time ? fill(texts.failed, { time }) : texts.failedNone;
    if (state === "unknown") return time ? fill(texts.unknownSince, { time }) : texts.unknown;
    return texts[state];
  }

  #drawTip(state) {
    const { info, tip } = this.#parts, texts = this.texts, status = this.#status;
    const lines = [];
    if (status?.next_run_at) {
      const ahead = (Date.parse(status.next_run_at) - this.#now()) / 1000;
      const distance = ahead < 1 ? texts.now : fill(texts.ahead, { length: this.#length(ahead, true) });
      lines.push(fill(texts.nextRunAt, { time: this.#time(status.next_run_at), distance }));
    }
    if (["running", "blocking"].includes(state) && status?.data_updated_at) {
      lines.push(fill(texts.dataFrom, { time: this.#time(status.data_updated_at) }));
    }
    info.hidden = lines.length === 0;
    info.setAttribute("aria-label", texts.nextRun);
    if (info.hidden) tip.hidden = true;
    const text = lines.join("\n");
    if (tip.textContent !== text) tip.textContent = text;
  }

  #drawOverlay(blocking) {
    const { dialog } = this.#parts;
    if (!blocking || this.getAttribute("overlay") === "off") {
      this.#blockedSince = null;
      clearTimeout(this.#timers.overlay);
      if (dialog.open) dialog.close(); // the browser gives the focus back to where it was
      return;
    }
    this.#fillDialog();
    if (this.#blockedSince === null) {
      this.#blockedSince = performance.now();
      this.#timers.overlay = setTimeout(() => this.#open(), OVERLAY_AFTER);
    }
  }

  #open() {
    const { dialog, title } = this.#parts;
    if (dialog.open || this.#blockedSince === null) return;
    this.#parts.tip.hidden = true;
    dialog.showModal();
    title.focus();
  }

  #fillDialog() {
    const { title, explanation, bar, fill: filled, facts } = this.#parts, texts = this.texts, status = this.#status;
    title.textContent = texts.title;
    explanation.textContent = texts.explanation;
    bar.setAttribute("aria-label", texts.progress);
    const share = status.total > 0 && status.processed !== null ? Math.min(1, status.processed / status.total) : null;
    if (share === null) {
      bar.removeAttribute("aria-valuenow");
      filled.style.inlineSize = "";
    } else {
      bar.setAttribute("aria-valuenow", String(Math.round(share * 100)));
      filled.style.inlineSize = `${share * 100}%`;
    }
    const begun = Date.parse(status.maintenance_started_at ?? status.started_at ?? "");
    const elapsed = Number.isNaN(begun) ? null : Math.max(0, (this.#now() - begun) / 1000);
    const rows = [
      [texts.phase, status.message ?? status.phase],
      [texts.elapsed, elapsed === null ? null : this.#length(elapsed)],
      [texts.remaining, elapsed === null ? null : this.#remaining(status, elapsed)],
    ].filter(([, value]) => value);
    facts.replaceChildren(...rows.flatMap(([name, value]) => {
      const term = document.createElement("dt"), told = document.createElement("dd");
      term.textContent = name;
      told.textContent = value;
      return [term, told];
    }));
  }

  #remaining({ eta_seconds: eta, eta_low_seconds: low, eta_high_seconds: high }, elapsed) {
    const texts = this.texts;
    if (typeof eta !== "number") return null;
    if (elapsed > (high ?? eta * 1.5)) return texts.longer;
    const left = Math.max(0, eta - elapsed);
    const about = left < 1 ? texts.soon : fill(texts.about, { length: this.#length(left) });
    if (typeof low !== "number" || typeof high !== "number" || high - low < 1) return about;
    const usually = fill(texts.usually, { low: this.#length(low), high: this.#length(high) });
    return `${about} (${usually})`;
  }

  #announce(text) {
    const over = this.#shown === "blocking" ? `${this.texts.over}. ` : "";
    this.#parts.heard.textContent = `${over}${text}`;
  }

  // --- times -----------------------------------------------------------------------------------------------

  #now() { return Date.now() + this.#offset; }

  /** With the zone it is in: that of `time-zone`, else the viewer's. */
  #time(iso) {
    const locale = this.getAttribute("locale") ?? undefined;
    const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" };
    const zone = this.#zone();
    const format = new Intl.DateTimeFormat(locale ?? "en-GB", { ...parts, timeZone: zone, timeZoneName: "short", hourCycle: "h23" });
    if (locale) return format.format(new Date(iso));
    const found = Object.fromEntries(format.formatToParts(new Date(iso)).map(({ type, value }) => [type, value]));
    return `${found.year}-${found.month}-${found.day} ${found.hour}:${found.minute} ${found.timeZoneName}`;
  }

  #zone() {
    const asked = this.getAttribute("time-zone") ?? undefined;
    try {
      return new Intl.DateTimeFormat("en", { timeZone: asked }).resolvedOptions().timeZone;
    } catch {
      console.error(`fencepost-status: there is no time zone ${asked}; times are shown in UTC`);
      return "UTC";
    }
  }

  /** `1 min 58 s`, or roughly `2 min`. */
  #length(seconds, roughly = false) {
    const texts = this.texts;
    const units = [[86_400, texts.days], [3_600, texts.hours], [60, texts.minutes], [1, texts.seconds]];
    const first = seconds < 1 ? 3 : units.findIndex(([size]) => seconds >= size);
    const [size, unit] = units[first];
    if (roughly) return fill(unit, { n: Math.round(seconds / size) });
    const [smaller, rest] = units[first + 1] ?? [1, ""];
    const more = Math.floor((seconds % size) / smaller);
    return fill(unit, { n: Math.floor(seconds / size) }) + (rest && more ? `\u00a0${fill(rest, { n: more })}` : "");
  }

  #fromAttribute() {
    try {
      return JSON.parse(this.getAttribute("texts") ?? "{}");
    } catch {
      console.error("fencepost-status: the attribute `texts` is not JSON; ours are shown");
      return {};
    }
  }
}

/** Puts values in place of `{names}`. */
function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

if (!customElements.get("fencepost-status")) customElements.define("fencepost-status", FencepostStatus);

export { FencepostStatus, TEXTS };
