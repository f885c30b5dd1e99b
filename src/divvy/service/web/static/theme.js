// Sets the theme before the first paint, so that nothing flashes. A classic script, loaded first.
(() => {
  const chosen = localStorage.getItem("divvy.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
