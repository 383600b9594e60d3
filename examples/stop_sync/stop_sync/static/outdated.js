// After an import this page is out of date. One without data is loaded again; on any other somebody may be reading.
const notice = document.querySelector("#outdated");
let shown;

document.querySelector("fencepost-status").addEventListener("fencepost-change", ({ detail: { data_updated_at: updated } }) => {
  shown ??= updated ?? "nothing";
  if (!updated || updated === shown) return;
  if (document.querySelector("table")) notice.hidden = false;
  else location.reload();
});
notice.querySelector("button").addEventListener("click", () => location.reload());
