// The pages of keys and values as a map: a row of cells for each layer group, a cell for each page.
function pageState(page, keep) {
  if (page.runs > 0) return "stored";
  return keep === "none" ? "kept-out" : "released";
}

// First position that the next token still sees in a group's layers.
function windowBegin(session, group) {
  return group.window === 0 ? 0 : Math.max(0, session.count + 1 - group.window);
}

function cellNode(session, group, page, twin) {
  const state = pageState(page, session.element(1).keep);
  const end = page.index * session.page_positions + page.valid;
  const cell = make("i", {class: `cell ${state}`});
  cell.style.setProperty("--fill", page.valid / session.page_positions);
  if (page.runs > 0) {
    cell.style.setProperty("--ink-share", Math.min(1, page.stored / page.bytes));
    if (page.runs > 1) cell.dataset.runs = page.runs;
  }
  if (group.window > 0 && end > windowBegin(session, group)) cell.classList.add("window");
  if (twin) cell.classList.add(twin.digest === page.digest ? "shared" : "own");
  else if (twin === null) cell.classList.add("own");
  cell.page = page;
  return cell;
}

function pageDetail(session, group, page, twin) {
  const begin = page.index * session.page_positions;
  const state = pageState(page, session.element(1).keep);
  const kind = {
    stored: "keys and values in the file",
    released: "released: out of the window, its digest is kept",
    "kept-out": "not kept: the digest is, and fingerprints",
  }[state];
  const rows = [
    ["positions", `${number(begin)}\u2013${number(begin + page.valid - 1)}`],
    ["layers", layersText(group.layers)],
    ["slots", `${page.valid} of ${session.page_positions}`],
  ];
  if (state === "stored") {
    rows.push(["numbers", size(page.bytes)]);
    rows.push(["in the file", size(page.stored)]);
    if (page.codec !== "raw") rows.push([page.codec, percent(page.stored / page.bytes)]);
    rows.push(["runs", page.runs]);
    rows.push(["last commit", page.commit]);
  }
  if (twin !== undefined) {
    rows.push(["in the other file", twin && twin.digest === page.digest ? "the same bits" : "not the same"]);
  }
  rows.push(["digest", grouped(page.digest)]);
  return {title: `page ${number(page.index)}`, kind, className: "page", rows};
}

// "0-4, 6-10"
function layersText(layers) {
  const ranges = [];
  for (const layer of layers) {
    const last = ranges[ranges.length - 1];
    if (last && last[1] === layer - 1) last[1] = layer;
    else ranges.push([layer, layer]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}\u2013${to}`)).join(", ");
}

function drawLegend(session, compared) {
  const legend = byId("cache-legend");
  const seen = new Set(session.groups.flatMap((group) =>
    group.pages.map((page) => pageState(page, session.element(1).keep))));
  const entry = (className, text, runs) => {
    const cell = make("i", {class: `cell ${className}`});
    if (runs) cell.dataset.runs = runs;
    legend.append(make("span", {}, cell, text));
  };
  if (seen.has("stored")) {
    if (compared) {
      entry("stored shared", "the same bits in both");
      entry("stored own", "only here");
    } else {
      entry("stored", "stored");
    }
  }
  if (seen.has("released")) entry("released", "released, digest kept");
  if (seen.has("kept-out")) entry("kept-out", "not kept, digest and fingerprints");
  const most = Math.max(0, ...session.groups.flatMap((group) => group.pages.map((page) => page.runs)));
  if (most > 1) entry("stored", "in so many runs, saved one after the other", most);
  if (session.groups.some((group) => group.window > 0)) {
    entry(`${seen.has("stored") ? "stored" : "kept-out"} window`, "in the window of the next token");
  }
}

function groupTitle(group) {
  const layers = `${group.layers.length === 1 ? "Layer" : "Layers"} ${layersText(group.layers)}`;
  const sees = group.window === 0 ? "sees every position" : `window of ${number(group.window)}`;
  const stored = group.stored === 0 ? "none stored"
    : `${number(group.stored)} of ${number(group.pages.length)} stored, ${size(group.stored_bytes)}`;
  return make("h3", {}, layers, make("small", {}, `${sees} \u00b7 ${stored}`));
}

// Layers with a state in place of pages, and the positions of which the file keeps theirs.
function recurrentTitle(recurrent) {
  const kept = recurrent.states.filter((state) => state.offset !== null);
  const bytes = kept.reduce((sum, state) => sum + state.stored, 0);
  const layers = `${recurrent.layers.length === 1 ? "Layer" : "Layers"} ${layersText(recurrent.layers)}`;
  const at = kept.length > 8 ? `${number(kept.length)} positions`
    : kept.map((state) => number(state.position)).join(", ");
  return make("h3", {}, layers, make("small", {}, kept.length === 0
    ? "recurrent \u00b7 no state stored"
    : `recurrent \u00b7 states after ${at}${kept.length > 8 ? "" : " tokens"}, ${size(bytes)}`));
}

// Draws the map. `select(page, detail)` is called for the page that is pointed at or moved to.
function drawCache(session, other, select) {
  const keep = session.element(1).keep;
  byId("cache-note").textContent = session.count === 0 ? "No pages: the log is empty."
    : `A page holds ${session.page_positions} positions, in ${session.groups.length === 1 ? "all layers"
      : "the layers that see the same positions"}. ` + (keep === "none"
      ? "This file keeps none of the numbers: a load computes them again and must reach the digests."
      : "A cell fills up with its slots" + (session.element(1).stored_bytes < session.element(1).bytes
        ? "; the paler it is, the better it was compressed." : "."));
  drawLegend(session, other !== null);
  session.groups.forEach((group, index) => {
    const twins = other && other.groups[index] ? other.groups[index].pages : null;
    const twinOf = (page) => (other === null ? undefined : (twins && twins[page.index]) || null);
    const cells = make("div", {class: "cells", role: "group",
      "aria-label": `Pages of layers ${layersText(group.layers)}`});
    cells.dataset.many = group.pages.length > 600 ? "2" : group.pages.length > 80 ? "1" : "0";
    for (const page of group.pages) cells.append(cellNode(session, group, page, twinOf(page)));
    if (cells.firstChild) cells.firstChild.tabIndex = 0;
    const tell = (event) => {
      const page = event.target.page;
      if (page) select(page, pageDetail(session, group, page, twinOf(page)));
    };
    cells.addEventListener("pointerover", tell);
    cells.addEventListener("click", tell);
    cells.addEventListener("focusin", tell);
    cells.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      const next = step && cells.children[event.target.page.index + step];
      if (next) {
        event.preventDefault();
        event.target.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    });
    byId("groups").append(make("div", {class: "group"}, groupTitle(group), cells));
  });
  const {recurrent} = session.element(1);
  if (recurrent) byId("groups").append(make("div", {class: "group"}, recurrentTitle(recurrent)));
}
