// Draws plots, saves them as PNG, SVG and CSV, copies texts. `page` holds the plots of the page.
"use strict";
let page = [];
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plain = text => String(text).replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

function layoutOf(plot, box) {
  const ink = css("--ink"), line = css("--line"), narrow = box.clientWidth < 520;
  const layout = structuredClone(plot.layout);
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis/.test(name)) Object.assign(layout[name], {gridcolor: line, zerolinecolor: line, linecolor: line});
  }
  layout.xaxis = {automargin: true, gridcolor: line, zerolinecolor: line, ...layout.xaxis};
  layout.yaxis = {automargin: true, gridcolor: line, zerolinecolor: line, ...layout.yaxis};
  const legend = {orientation: "h", y: -0.22, yanchor: "top", x: 0, font: {size: narrow ? 10 : 12}, ...layout.legend};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: ink, size: narrow ? 11 : 12},
    margin: {l: 50, r: 14, t: 10, b: 44}, hoverlabel: {bgcolor: css("--card"), bordercolor: line, font: {color: ink}},
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", ...layout, legend,
  };
}

function draw(box) {
  const plot = page[box.dataset.plot];
  return Plotly.react(box, plot.data, layoutOf(plot, box), {displayModeBar: false, responsive: true}).then(() => {
    box.dataset.drawn = "yes";
  });
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function savePicture(box, format) {
  const plot = page[box.dataset.plot], width = Math.max(box.clientWidth, 640), height = box.clientHeight;
  const light = {...layoutOf(plot, box), paper_bgcolor: css("--paper"), title: {text: plot.title}, width, height: height + 40};
  light.margin = {...light.margin, t: 50};
  const url = await Plotly.toImage({data: plot.data, layout: light}, {format, width, height: height + 40, scale: 2});
  const comma = url.indexOf(","), bytes = url.slice(comma + 1);
  const text = url.slice(0, comma).endsWith("base64") ? atob(bytes) : decodeURIComponent(bytes);
  const isPng = format === "png";
  const content = isPng ? Uint8Array.from(text, c => c.charCodeAt(0)) : text;
  save(`${plot.key}.${format}`, new Blob([content], {type: isPng ? "image/png" : "image/svg+xml"}));
}

// Rows of any plot that we make: lines, bars, boxes (x, y and a name) and maps (x, y, z).
function rowsOf(plot) {
  const title = axis => (plot.layout[axis] && plot.layout[axis].title && plot.layout[axis].title.text) || "";
  const rows = [];
  let map = false;
  for (const trace of plot.data) {
    if (trace.z) {
      map = true;
      trace.z.forEach((line, i) => line.forEach((z, j) => rows.push(
        [trace.x ? trace.x[j] : j, trace.y ? trace.y[i] : i, z === null ? "" : z])));
      continue;
    }
    if (trace.hoverinfo === "skip") continue; // bands and marks repeat what lines say
    const n = Math.max((trace.x || []).length, (trace.y || []).length);
    for (let i = 0; i < n; i++) {
      const x = trace.x ? trace.x[i] : "", y = trace.y ? trace.y[i] : "";
      if (x === null && y === null) continue;
      rows.push([trace.name || "", x ?? "", y ?? "", trace.text && trace.text[i] !== undefined ? trace.text[i] : ""]);
    }
  }
  const names = map ? [title("xaxis") || "x", title("yaxis") || "y", "value"]
    : ["series", title("xaxis") || "x", title("yaxis") || "y", "name"];
  return [names, ...rows];
}

// A spreadsheet computes a cell that starts like a formula: an apostrophe keeps it a text.
function cell(value) {
  let text = plain(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && isNaN(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
const csv = rows => rows.map(row => row.map(cell).join(",")).join("\n") + "\n";
window.feddagCsv = index => csv(rowsOf(page[index]));

document.addEventListener("click", async event => {
  const button = event.target.closest("button");
  if (!button) return;
  const figure = button.closest("figure"), box = figure && figure.querySelector(".chart");
  if (button.dataset.save === "csv" && box) {
    save(`${page[box.dataset.plot].key}.csv`, new Blob([csv(rowsOf(page[box.dataset.plot]))], {type: "text/csv"}));
  } else if (button.dataset.save && box) {
    await savePicture(box, button.dataset.save);
  } else if (button.dataset.copy !== undefined) {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
      button.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2500);
  } else if (button.dataset.theme !== undefined) {
    const dark = css("color-scheme") === "dark" || getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    redraw();
  }
});

function redraw() {
  document.querySelectorAll(".chart[data-drawn]").forEach(draw);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

