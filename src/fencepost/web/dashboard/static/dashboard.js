// What the pages do beside being pages: they update by themselves, count times on, and heed the keyboard.
// Everything works without this file. Nothing from the server is read as code: new pages are parsed as documents, and
// scripts in a parsed document never run.

const root = new URL(document.body.dataset.root, location.href);
const main = document.querySelector("main");
const said = document.querySelector("#said");
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// --- putting a new version of the page in place of the old one -------------------------------------------------
// Elements stay the same objects where they can, so that focus, selection, scroll and what is being typed stay.

function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || key(from) !== key(to)) {
    from.replaceWith(document.importNode(to, true));
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.isEqualNode(to)) return;
  const busy = from === document.activeElement && from.matches("input, select, textarea");
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !kept(from, name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value && !kept(from, name)) from.setAttribute(name, value);
  }
  if (busy || from.matches("textarea, select")) return;
  const following = from.matches("[data-follow]") && from.scrollHeight - from.scrollTop - from.clientHeight < 20;
  children(from, to);
  if (following) from.scrollTop = from.scrollHeight;
}

const key = (node) => (node.nodeType === Node.ELEMENT_NODE && node.id) || "";
const kept = (element, name) => (name === "open" && element.matches("details")) || (name === "aria-selected") ||
  (name === "hidden" && element.matches("[data-copy], [data-help]")) || (name === "checked");

function children(from, to) {
  const named = new Map([...from.children].filter((each) => each.id).map((each) => [each.id, each]));
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const same = key(wanted) ? named.get(key(wanted)) : null;
    if (same) {
      if (same !== place) from.insertBefore(same, place); else place = place.nextSibling;
      morph(same, wanted);
    } else if (place && !key(place) && place.nodeName === wanted.nodeName && !key(wanted)) {
      const next = place.nextSibling;
      morph(place, wanted);
      place = next;
    } else {
      from.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
}

// --- reading the page anew ---------------------------------------------------------------------------------------

let reading = null;

async function refresh(aloud = false) {
  if (reading) return reading;
  reading = (async () => {
    try {
      const limit = AbortSignal.timeout(15_000);
      const answer = await fetch(location.href, { headers: { "Fencepost-Part": "main", Accept: "text/html" }, signal: limit, redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return; } // signed out meanwhile
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(`<main>${await answer.text()}</main>`, "text/html");
      const fresh = page.querySelector("main");
      for (const attribute of main.attributes) fresh.setAttribute(attribute.name, attribute.value);
      morph(main, fresh);
      prepare();
      show("live");
      if (aloud) say("The page was read anew.");
    } catch {
      show("lost");
      if (aloud) say("The service does not answer.");
    } finally {
      reading = null;
    }
  })();
  return reading;
}

/** One polite line for screen readers. */
function say(text) {
  said.textContent = "";
  requestAnimationFrame(() => { said.textContent = text; });
}

// --- live: one stream for all pages of this browser ------------------------------------------------------------
// Visible pages ask for a lock. The one that has it holds the stream and passes on what it hears; a hidden page lets go of
// both. Web Locks need https or localhost; without them each page has a stream of its own.

const SILENT = 16_000; // three beats of the service
const BETWEEN = 2_000; // two readings of a page, however much happens
const MOST_TRIES = 10; // readings for one event: the store's clock may have stepped back
const light = document.querySelector("#live");
const forms = "input:not([type=search]):not([type=checkbox]):not([type=hidden]), textarea";
let wanted = document.body.dataset.live === "on" && !main.querySelector(`form[method=post] :is(${forms})`);
let leave = null, joined = false, due = "", tries = 0, channel = null, stream = null, heardAt = 0, lastRead = 0, timer = null, retries = 0, polled = false;

function show(state) {
  if (!light) return;
  const now = wanted ? state : "off";
  light.hidden = false;
  light.dataset.state = now;
  const text = { live: "live", lost: "not connected", off: "not live", connecting: "connecting" }[now];
  if (light.textContent !== text) light.textContent = text;
}

function update() {
  const on = wanted && !document.hidden;
  if (on && !leave) begin();
  if (!on && leave) end();
  if (!wanted) show("off");
}

function begin() {
  const name = `fencepost dashboard ${root.href}`;
  channel = new BroadcastChannel(name);
  channel.onmessage = ({ data }) => heard(data);
  joined = false;
  const waiting = new AbortController();
  const held = new Promise((release) => { leave = () => { waiting.abort(); release(); }; });
  show("live");
  if (!navigator.locks) { open(); return; }
  navigator.locks.request(name, { signal: waiting.signal }, () => {
    if (waiting.signal.aborted) return undefined;
    open();
    return held;
  }).catch(() => {}); // stopped waiting
}

function end() {
  clearTimeout(timer);
  timer = null;
  stream?.close();
  stream = null;
  channel.close();
  channel = null;
  leave();
  leave = null;
}

function open() {
  stream?.close();
  const url = new URL("api/v1/events", root);
  url.search = new URLSearchParams({ kinds: "fire,job,replica,leader,store,beat", quiet: "1" });
  const mine = stream = new EventSource(url);
  heardAt = Date.now();
  for (const kind of ["hello", "fire", "job", "replica", "leader", "store", "reset", "beat"]) {
    mine.addEventListener(kind, ({ data, lastEventId }) => {
      retries = 0;
      let about = {};
      try { about = JSON.parse(data); } catch { /* then it may concern any page */ }
      polled = about.polled ?? polled; // each answer ends at once: that says nothing
      const at = about.now ?? lastEventId.split("~")[0];
      const news = { kind, at, job: about.job_id ?? "", key: about.key ?? "", answers: about.answers, state: about.state ?? "", replica: about.replica ?? "" };
      channel?.postMessage(news);
      heard(news);
    });
  }
  mine.onerror = async () => {
    if (!polled) show("lost");
    if (mine.readyState !== EventSource.CLOSED) return; // the browser connects anew by itself
    await pause(Math.min(60_000, 2_000 * 2 ** retries++) * (0.75 + Math.random() / 2));
    if (stream === mine) open();
  };
}

/** By the store's clock: all that changed until then is on the page. */
const asOf = () => main.querySelector("[data-as-of]")?.dataset.asOf ?? "";

function heard({ kind, at, job, key: fire, answers, state, replica }) {
  heardAt = Date.now();
  // What changed after the page was made and before the stream began, or before this page listened, no event tells of.
  const first = !joined || kind === "hello";
  joined = true;
  if (first && !(asOf() >= at)) reach(at);
  if (light?.dataset.state === "lost" && kind !== "store") soon();
  if (kind === "beat" || kind === "hello") { show("live"); return; }
  if (kind === "store") { show(answers ? "live" : "lost"); say(answers ? "The store answers again." : "The store does not answer."); }
  if (kind === "leader") say(replica ? `${replica} leads now.` : "No replica leads.");
  const about = decodeURIComponent(location.pathname.slice(root.pathname.length)).split("/");
  if (about[0] === "fires" && about[1] && fire && fire !== about[1]) return;
  if (about[0] === "jobs" && about[1] && job && job !== about[1]) return;
  if (about[0] === "fires" && about[1] && fire === about[1] && state && state !== main.dataset.state) {
    if (main.dataset.state) say(`This fire is ${state} now.`);
    main.dataset.state = state;
  }
  reach(at);
}

/** Read the page, and again if what comes is older than that: a reading is shared with others for a while. */
function reach(at) {
  if (at > due) due = at;
  tries = 0;
  soon();
}

/** Soon, and not while somebody selects text or has pages hidden. */
function soon() {
  if (timer !== null || !leave) return;
  const wait = Math.max(100, lastRead + BETWEEN * (0.9 + Math.random() / 5) - Date.now());
  timer = setTimeout(async () => {
    timer = null;
    if (!leave) return;
    if (!getSelection().isCollapsed && main.contains(getSelection().anchorNode)) { lastRead = Date.now(); soon(); return; }
    const begun = performance.now();
    await refresh();
    lastRead = Date.now() + Math.min(30_000, 4 * (performance.now() - begun)); // a service that is busy is asked less
    if (asOf() && asOf() < due && tries++ < MOST_TRIES) soon();
  }, wait);
}

async function turn(on) {
  wanted = on;
  document.body.dataset.live = on ? "on" : "off";
  update();
  show(on ? "live" : "off");
  const body = new URLSearchParams({ live: on ? "on" : "off", next: "/" });
  await fetch(new URL("preferences", root), { method: "POST", body, redirect: "manual" }).catch(() => {});
  say(on ? "Live updates are on." : "Live updates are off."); // and will be after a reload
}

// --- times -----------------------------------------------------------------------------------------------------

function count() {
  for (const each of document.querySelectorAll("time[data-ago], time[data-in]")) {
    const past = "ago" in each.dataset, seconds = (Date.parse(each.dateTime) - Date.now() - offset) / 1000;
    const far = Math.max(0, past ? -seconds : seconds);
    const [size, unit] = far >= 86_400 ? [86_400, "d"] : far >= 3_600 ? [3_600, "h"] : far >= 60 ? [60, "min"] : [1, "s"];
    const text = `${Math.floor(far / size)} ${unit}`;
    const told = past ? `${text} ago` : far > 0 ? `in ${text}` : "now";
    if (each.textContent !== told) each.firstChild.nodeValue = told;
  }
}

let offset = 0; // the service's clock less ours, in milliseconds

// --- the page itself -------------------------------------------------------------------------------------------

function prepare() {
  const now = main.querySelector("[data-now]");
  if (now) offset = Date.parse(now.dataset.now) - Date.now();
  for (const button of main.querySelectorAll("[data-copy]")) button.hidden = false;
  const again = main.querySelector("[data-again]");
  if (again) setTimeout(() => refresh(), 1000 * again.dataset.again);
}

for (const select of document.querySelectorAll("[data-zones]")) {
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (mine && ![...select.options].some(({ value }) => value === mine)) select.add(new Option(`${mine} (this browser)`, mine), 1);
  select.addEventListener("change", () => select.form.requestSubmit());
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-copy]");
  if (button) {
    try {
      await navigator.clipboard.writeText(button.dataset.copy); // not there on plain HTTP
      say("Copied.");
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.querySelector("h1"));
      say("Selected; press Ctrl+C.");
    }
  }
  if (target.closest?.("[data-help]")) help();
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
});

// --- keyboard --------------------------------------------------------------------------------------------------

const pages = { o: "", j: "jobs", f: "fires", l: "load", c: "cluster", h: "history", a: "audit", d: "doctor" };
let going = 0;

function help() { document.querySelector("#help")?.showModal(); }

function step(by) {
  const links = [...main.querySelectorAll("[data-rows] [data-row]")].filter((link) => link.offsetParent);
  if (!links.length) return;
  const here = links.indexOf(document.activeElement);
  const next = links[Math.min(links.length - 1, Math.max(0, here === -1 ? (by > 0 ? 0 : links.length - 1) : here + by))];
  for (const row of main.querySelectorAll("[aria-selected]")) row.removeAttribute("aria-selected");
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (going && Date.now() - going < 1_500 && event.key in pages) { going = 0; location.assign(new URL(pages[event.key], root)); return; }
  going = 0;
  const act = {
    "/": () => document.querySelector("#find")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    r: () => refresh(true),
    l: () => turn(!wanted),
    x: () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
    g: () => { going = Date.now(); },
    "?": help,
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

for (const button of document.querySelectorAll("[data-help]")) button.hidden = false;
document.addEventListener("visibilitychange", () => { update(); if (!document.hidden && wanted) soon(); });
addEventListener("pagehide", () => { if (leave) end(); });
addEventListener("pageshow", ({ persisted }) => { if (persisted) update(); });
setInterval(() => {
  if (document.hidden) return;
  count();
  if (leave && Date.now() - heardAt > SILENT) { heardAt = Date.now(); show("lost"); if (stream) open(); }
}, 1_000);
prepare();
update();
globalThis.fencepostStreams = () => Number(stream !== null && stream.readyState !== EventSource.CLOSED); // for those who look
