// Light or dark, by the system or by choice. Loaded before the page is drawn, so that nothing flashes.

const THEMES = ["auto", "light", "dark"];

function chosen() {
  try { return THEMES.find((name) => name === localStorage.getItem("embereye.theme")) || "auto"; } catch { return "auto"; }
}

function apply(name) {
  document.documentElement.dataset.theme = name;
}

apply(chosen());
document.addEventListener("DOMContentLoaded", () => {
  const select = document.getElementById("theme");
  if (!select) return;
  select.value = chosen();
  select.onchange = () => {
    apply(select.value);
    try { localStorage.setItem("embereye.theme", select.value); } catch { /* private browsing: for this page only */ }
  };
});
