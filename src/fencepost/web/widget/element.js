// <fencepost-status>: how fresh the data is, what runs now, and a dialog while the application is blocked.
//
//   <script type="module" src="/fencepost/widget.js"></script>
//   <fencepost-status></fencepost-status>
//
// Attributes, texts and colours: docs/widget.md. Everything from the server is set as text, never as markup.

const OVERLAY_AFTER = 300; // a phase that blocks for less is not worth a flash
const TIP_GAP = 6; // pixels from the button, and from the edges of the window
const TIP_LINGERS = 200;

class FencepostStatus extends HTMLElement {
  static observedAttributes = ["src", "job", "texts", "time-zone", "locale", "lang", "overlay", "live"];
  static #blocked = new Set(); // elements that would show a dialog: the first one does

  #source = null;
  #blockedSince = null;
  #shown = ""; // the state announced last
  #timers = {};
  #own = {}; // texts given by code
  #parts = {};

  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    this.#build();
  }

  connectedCallback() {
    this.#timers.tick = setInterval(() => this.#draw(), 1_000);
    this.#listen();
  }

  disconnectedCallback() {
    this.#source?.leave(this.#changed);
    this.#source = null;
    clearInterval(this.#timers.tick);
    clearTimeout(this.#timers.hide);
    this.#showTip(false);
    this.#drawOverlay(false);
  }

  attributeChangedCallback(name) {
    if (!this.isConnected) return;
    if (["src", "job", "live"].includes(name)) this.#listen();
    else this.#draw();
  }

  /** Texts in place of ours; also the attribute `texts`, as JSON. */
  get texts() { return { ...TEXTS[this.#language()], ...this.#json("texts"), ...this.#own }; }
  set texts(given) { this.#own = { ...given }; this.#draw(); }

  /** The last status document; null: none yet. */
  get status() { return this.#source?.document ?? null; }

  /** Ask now. */
  refresh() { return this.#source?.refresh(); }

  #listen() {
    const base = this.getAttribute("src") ?? new URL(".", import.meta.url).href;
    const url = new URL(base.endsWith("/") ? base : `${base}/`, document.baseURI).href;
    const source = Status.of(url, this.getAttribute("job") ?? "", this.getAttribute("live") !== "off");
    if (source === this.#source) return;
    const first = this.#source === null ? this.#json("status") : null; // what the server rendered is of the first source
    this.#source?.leave(this.#changed);
    this.#source = source;
    source.join(this.#changed, first);
    this.#draw();
  }

  #changed = (changed) => {
    this.#draw();
    if (!changed) return;
    const options = { detail: this.status, bubbles: true, composed: true };
    this.dispatchEvent(new CustomEvent("fencepost-change", options));
  };

  #language() {
    const asked = (this.closest("[lang]")?.lang ?? document.documentElement.lang).toLowerCase().split("-")[0];
    return Object.hasOwn(TEXTS, asked) ? asked : "en";
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
    const tip = make("span", { role: "tooltip", id: "tip", class: "tip", part: "tooltip", popover: "manual" });
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
    const slot = make("slot"); // what the server rendered, until the first answer
    const heard = make("span", { class: "heard", "aria-live": "polite" });
    this.#parts = { slot, row, path, label, info, tip, title, explanation, bar, fill, facts, dialog, heard };
    this.shadowRoot.adoptedStyleSheets = [SHEET];
    this.shadowRoot.append(slot, row, info, tip, dialog, heard);
    this.#behave();
  }

  #behave() {
    const { info, dialog } = this.#parts;
    const show = () => this.#showTip(true);
    info.addEventListener("mouseenter", show);
    info.addEventListener("focus", show);
    info.addEventListener("click", show); // a finger neither hovers nor always focuses
    info.addEventListener("blur", () => this.#showTip(false));
    this.addEventListener("mouseover", () => clearTimeout(this.#timers.hide));
    this.addEventListener("mouseleave", () => { // the way to the tooltip leads over a gap
      this.#timers.hide = setTimeout(() => this.#showTip(false), TIP_LINGERS);
    });
    this.addEventListener("keydown", (event) => { if (event.key === "Escape") this.#showTip(false); });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => { if (this.#blockedSince !== null && this.isConnected) this.#open(); });
  }

  #showTip(visible) {
    const { info, tip } = this.#parts;
    clearTimeout(this.#timers.hide);
    if (!visible || info.hidden) {
      if (tip.matches(":popover-open")) tip.hidePopover();
      removeEventListener("scroll", this.#placeTip, true);
      removeEventListener("resize", this.#placeTip);
      return;
    }
    if (!tip.matches(":popover-open")) tip.showPopover();
    addEventListener("scroll", this.#placeTip, { capture: true, passive: true });
    addEventListener("resize", this.#placeTip);
    this.#placeTip();
  }

  /** Below the button, or above it where there is no room, and always inside the window. */
  #placeTip = () => {
    const { info, tip } = this.#parts;
    const { clientWidth: width, clientHeight: height } = document.documentElement;
    const button = info.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const below = button.bottom + TIP_GAP, above = button.top - TIP_GAP - box.height;
    const top = below + box.height > height - TIP_GAP && above >= TIP_GAP ? above : below;
    const left = Math.min(button.right - box.width, width - box.width - TIP_GAP);
    tip.style.left = `${Math.max(TIP_GAP, left)}px`;
    tip.style.top = `${top}px`;
  };

  #draw() {
    if (this.#source === null) return;
    const state = this.#state();
    const { slot, row, path, label } = this.#parts;
    slot.hidden = state !== "waiting";
    row.hidden = ["waiting", "signedOut"].includes(state);
    if (!row.hidden) {
      row.dataset.state = state;
      path.setAttribute("d", MARKS[state]);
    }
    const text = row.hidden ? "" : this.#labelText(state);
    if (label.textContent !== text) label.textContent = text;
    this.#drawTip(state);
    this.#drawOverlay(state === "blocking" && this.#source.answered);
    if (this.#shown && this.#shown !== state) this.#announce(text);
    if (this.#source.answered || this.#source.failing) this.#shown = state; // before the first answer nothing has changed
  }

  #state() {
    const { document: status, believed, failing, signedOut } = this.#source;
    if (signedOut) return "signedOut";
    if (!believed) return failing ? "unknown" : "waiting";
    if (status.status === "running") return status.blocking_maintenance ? "blocking" : "running";
    if (status.status === "failed") return "failed";
    return status.data_updated_at ? "ok" : "none";
  }

  #labelText(state) {
    const texts = this.texts, at = this.status?.data_updated_at;
    const time = at ? this.#time(at) : null;
    if (state === "ok") return fill(texts.updated, { time });
    if (state === "failed") return time ? fill(texts.failed, { time }) : texts.failedNone;
    if (state === "unknown") return time ? fill(texts.unknownSince, { time }) : texts.unknown;
    return texts[state];
  }

  #drawTip(state) {
    const { info, tip } = this.#parts, texts = this.texts, { status } = this;
    const lines = [];
    if (status?.next_run_at) {
      const ahead = (Date.parse(status.next_run_at) - this.#source.now()) / 1000;
      const distance = ahead < 1 ? texts.now : fill(texts.ahead, { length: this.#length(ahead, true) });
      lines.push(fill(texts.nextRunAt, { time: this.#time(status.next_run_at), distance }));
    }
    if (["running", "blocking"].includes(state) && status?.data_updated_at) {
      lines.push(fill(texts.dataFrom, { time: this.#time(status.data_updated_at) }));
    }
    info.hidden = lines.length === 0;
    info.setAttribute("aria-label", texts.nextRun);
    if (info.hidden) this.#showTip(false);
    const text = lines.join("\n");
    if (tip.textContent === text) return;
    tip.textContent = text;
    if (tip.matches(":popover-open")) this.#placeTip();
  }

  #drawOverlay(blocking) {
    const { dialog } = this.#parts;
    if (!blocking || this.getAttribute("overlay") === "off") {
      FencepostStatus.#blocked.delete(this);
      this.#blockedSince = null;
      if (dialog.open) dialog.close(); // the browser gives the focus back to where it was
      return;
    }
    FencepostStatus.#blocked.add(this);
    this.#blockedSince ??= performance.now();
    this.#fillDialog();
    const wait = this.#blockedSince + OVERLAY_AFTER - performance.now();
    if (wait <= 0) this.#open();
    else setTimeout(() => this.#open(), wait);
  }

  #open() {
    const { dialog, title } = this.#parts;
    const [first] = FencepostStatus.#blocked; // two elements, one dialog
    if (dialog.open || first !== this) return;
    this.#showTip(false);
    dialog.showModal();
    title.focus();
  }

  #fillDialog() {
    const { title, explanation, bar, fill: filled, facts } = this.#parts, texts = this.texts, { status } = this;
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
    const elapsed = Number.isNaN(begun) ? null : Math.max(0, (this.#source.now() - begun) / 1000);
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
    if (!text) return;
    const over = this.#shown === "blocking" ? `${this.texts.over}. ` : "";
    this.#parts.heard.textContent = `${over}${text}`;
  }

  // --- times -----------------------------------------------------------------------------------------------

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

  #json(name) {
    try {
      return JSON.parse(this.getAttribute(name) || "null");
    } catch {
      console.error(`fencepost-status: the attribute \`${name}\` is not JSON; it is ignored`);
      return null;
    }
  }
}

/** Puts values in place of `{names}`. */
function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

if (!customElements.get("fencepost-status")) customElements.define("fencepost-status", FencepostStatus);

const ENGLISH = TEXTS.en;

export { FencepostStatus, ENGLISH as TEXTS };
