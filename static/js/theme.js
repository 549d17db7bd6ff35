// Runs before the first paint so that a chosen theme never flashes.
{
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
