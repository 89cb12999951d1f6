const errors = [];
const drawn = Array.from(document.querySelectorAll("figure")).map((figure) => {
  const place = figure.querySelector(".chart");
  const told = JSON.parse(figure.querySelector("script").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  return vegaEmbed(place, told, {
    renderer: "svg",
    actions: false,
    tooltip: { theme: dark ? "dark" : "light" },
  }).catch((error) => {
    errors.push(String(error));
    place.textContent = "This chart could not be drawn: " + error;
  });
});
Promise.all(drawn).then(() => {
  document.body.dataset.drawn = String(drawn.length);
  document.body.dataset.errors = String(errors.length);
});
