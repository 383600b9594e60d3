// How the element looks. Not a <style>: pages with a strict content security policy allow none.

const SHEET = new CSSStyleSheet();
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
  .row[hidden], slot[hidden] { display: none; }
  .info { font: inherit; color: inherit; background: none; border: 1px solid currentcolor; border-radius: 50%;
    inline-size: 1.5rem; block-size: 1.5rem; padding: 0; line-height: 1; cursor: help; flex: none; }
  .info[hidden] { display: none; }
  .info:focus-visible { outline: 2px solid var(--busy); outline-offset: 2px; }
  .tip { inset: auto; margin: 0; box-sizing: border-box; inline-size: max-content; max-inline-size: min(24rem, 100vw - 1rem);
    white-space: pre-line; padding: .4rem .6rem; border: 1px solid var(--line); border-radius: .4rem; overflow: visible;
    background: var(--surface); color: var(--text); box-shadow: 0 2px 8px rgb(0 0 0 / 20%); }
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
  @media (forced-colors: active) { /* backgrounds are taken away there: borders and system colours say the same */
    .mark, [data-state] .mark { stroke: CanvasText; }
    .info:focus-visible { outline-color: Highlight; }
    .bar { border: 1px solid CanvasText; }
    .bar div { forced-color-adjust: none; background: Highlight; }
    dt { color: CanvasText; }
  }
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
