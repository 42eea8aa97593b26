// A report: everything is inside the page, and no request ever leaves it.
page = JSON.parse(document.getElementById("plots").textContent);

async function unpackPlotly() {
  const text = atob(document.getElementById("plotly").textContent.trim()), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text(); // the policy knows the SHA-256 of this text
  document.head.append(script);
}

// A plot is drawn when it comes near the screen: a page with many plots can be used at once.
async function start() {
  const boxes = document.querySelectorAll(".chart");
  if (!boxes.length) return;
  await unpackPlotly();
  const watch = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watch.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, {rootMargin: "300px"});
  boxes.forEach(box => watch.observe(box));
  addEventListener("beforeprint", () => boxes.forEach(box => box.dataset.drawn || draw(box)));
  window.feddagDrawAll = () => Promise.all([...boxes].map(draw));
}
window.feddagReady = start();
