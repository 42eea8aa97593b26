// The dashboard: asks once a second what is new, and shows the chosen runs. All names go in as text.
"use strict";
const MOST = 8, COLUMNS = [
  ["", r => null], ["run", r => r.label], ["status", r => r.status], ["method", r => r.method], ["data", r => r.data],
  ["seed", r => r.seed], ["round", r => r.round === null ? null : `${r.round} of ${r.rounds}`],
  ["accuracy", r => r.accuracy === null || r.accuracy === undefined ? null : (100 * r.accuracy).toFixed(1) + "%"],
  ["clusters", r => r.clusters], ["sent", r => r.bytes === undefined ? null : bytes(r.bytes)],
  ["time", r => r.seconds === undefined || r.seconds === null ? null : seconds(r.seconds)], ["failed answers", r => r.failures],
];
const LEFT = new Set(["run", "status", "method", "data"]);
const rows = new Map(), lines = new Map();
let version = 0, chosen = [], shownVersion = -1, choosing = false, busy = false, byHand = false;
const get = id => document.getElementById(id);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(1) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : (n / 1e3).toFixed(1) + " kB";
const seconds = s => s >= 3600 ? (s / 3600).toFixed(1) + " h" : s >= 120 ? (s / 60).toFixed(1) + " min" : s.toFixed(1) + " s";

function order(a, b) {
  const rank = {running: 0, stopped: 1, finished: 1};
  return rank[a.status] - rank[b.status] || b.updated - a.updated || (a.label < b.label ? -1 : 1);
}

function wanted(row) {
  const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${row.label} ${row.method} ${row.data} ${row.status} seed ${row.seed}`.toLowerCase();
  const states = [...document.querySelectorAll(".status:checked")].map(box => box.value);
  return states.includes(row.status) && words.every(word => text.includes(word));
}

function line(row) {
  let tr = lines.get(row.id);
  if (!tr) {
    tr = document.createElement("tr");
    for (const [name] of COLUMNS) {
      const td = tr.insertCell();
      if (!LEFT.has(name)) td.className = "n";
    }
    const box = document.createElement("input");
    box.type = "checkbox";
    box.value = row.id;
    box.setAttribute("aria-label", "show this run");
    tr.cells[0].append(box);
    lines.set(row.id, tr);
  }
  COLUMNS.forEach(([, value], i) => {
    if (!i) return;
    const text = value(row), shown = text === null || text === undefined || text === "" ? "–" : String(text);
    if (tr.cells[i].textContent !== shown) tr.cells[i].textContent = shown;
  });
  tr.className = row.status;
  tr.cells[0].firstChild.checked = chosen.includes(row.id);
  return tr;
}

function list() {
  const all = [...rows.values()].sort(order), table = get("runs");
  const count = status => all.filter(row => row.status === status).length;
  get("answer").textContent = all.length
    ? `${all.length} runs: ${count("running")} running, ${count("finished")} finished, ${count("stopped")} stopped.`
    : "There is no run below this folder yet. This page shows runs as they start.";
  const heads = document.createElement("tr");
  for (const [name] of COLUMNS) {
    const th = document.createElement("th");
    th.textContent = name;
    if (!LEFT.has(name)) th.className = "n";
    heads.append(th);
  }
  table.replaceChildren(heads, ...all.filter(wanted).map(line));
  if (!byHand && !chosen.length && all.length) choose([all[0].id]);
}

function choose(ids) {
  chosen = ids.slice(0, MOST);
  choosing = true;
  list();
  show();
}

// The sections of the chosen runs. Plots that stay are redrawn in place, so the page does not jump.
async function show() {
  if (busy) return;
  busy = true;
  choosing = false;
  try {
    const asked = chosen.join(",");
    const found = asked ? await (await fetch(`/api/sections?ids=${encodeURIComponent(asked)}`)).json() : {html: "", plots: []};
    const old = get("sections"), next = document.createElement("div");
    next.innerHTML = found.html; // made by the server's templates, every name in it is escaped
    const same = old.dataset.ids === asked && old.querySelectorAll(".chart").length === next.querySelectorAll(".chart").length;
    page = found.plots;
    if (same) {
      const charts = [...old.querySelectorAll(".chart")];
      next.querySelectorAll(".chart").forEach((chart, i) => chart.replaceWith(charts[i]));
      charts.forEach((chart, i) => { chart.dataset.plot = i; });
    }
    old.replaceChildren(...next.childNodes);
    old.dataset.ids = asked;
    shownVersion = version;
    links();
    if (same) {
      old.querySelectorAll(".chart[data-drawn]").forEach(draw);
    } else {
      eyes.disconnect();
      old.querySelectorAll(".chart").forEach(chart => eyes.observe(chart));
    }
    old.dataset.round = Math.max(-1, ...chosen.map(id => rows.get(id) ? rows.get(id).round : -1));
  } finally {
    busy = false;
  }
}
const eyes = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (entry.isIntersecting) { eyes.unobserve(entry.target); draw(entry.target); }
  }
}, {rootMargin: "300px"});

function links() {
  const made = [...document.querySelectorAll("#sections > section")].map(section => {
    const link = document.createElement("a");
    link.href = "#" + section.id;
    link.textContent = section.querySelector("h2").textContent;
    return link;
  });
  get("links").replaceChildren(get("links").firstElementChild, ...made);
}

async function ask() {
  try {
    const answer = await fetch(`/api/runs?since=${version}`);
    if (!answer.ok) throw new Error(String(answer.status));
    const news = await answer.json();
    get("state").textContent = "";
    if (news.version !== version || news.rows.length) {
      news.rows.forEach(row => rows.set(row.id, row));
      const known = new Set(news.ids);
      for (const id of [...rows.keys()]) if (!known.has(id)) { rows.delete(id); lines.delete(id); }
      chosen = chosen.filter(id => rows.has(id));
      version = news.version;
      list();
      if (choosing || news.rows.some(row => chosen.includes(row.id))) await show();
    }
  } catch {
    get("state").textContent = "the dashboard has ended, or cannot be reached";
  }
  setTimeout(ask, document.hidden ? 5000 : 1000);
}

get("filter").addEventListener("input", list);
document.querySelectorAll(".status").forEach(box => box.addEventListener("change", list));
get("runs").addEventListener("click", event => {
  const tr = event.target.closest("tr"), box = tr && tr.querySelector("input");
  if (!box) return;
  byHand = true;
  if (event.target === box) {
    choose(box.checked ? [...chosen, box.value] : chosen.filter(id => id !== box.value));
  } else {
    choose([box.value]);
  }
});
history.replaceState(null, "", "/"); // the token does not stay in the address
ask();
