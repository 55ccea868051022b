// Puts the page together from the data that it carries.
function showDetail({title, kind, className, rows}) {
  const list = make("dl", {}, ...rows.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
  const close = make("button", {type: "button", class: "close", "aria-label": "close"}, "\u00d7");
  close.addEventListener("click", () => byId("detail").classList.remove("open"));
  byId("detail").replaceChildren(close, make("p", {class: `title ${className}`}, title),
      make("p", {class: "kind"}, kind), list);
  byId("detail").classList.add("open");
}

function drawPage({session: json, other: otherJson, difference}) {
  const session = readSession(json);
  const other = otherJson === null ? null : readSession(otherJson);
  document.title = `${session.name} \u00b7 Stasis`;
  byId("name").textContent = session.name;
  const turns = turnsOf(session).filter((turn) => turn.role !== "none").length;
  const config = session.element(6);
  byId("lead").textContent = `${several(session.count, "token")}${turns ? ` in ${several(turns, "turn")}` : ""}, ` +
    `computed by a ${config.architecture} model of ${session.element(11).layers} layers, ready to go on ` +
    `at position ${number(session.count)} of ${number(config.capacity)}.`;
  byId("root-short").textContent = grouped(session.root);
  drawBars(session.root);
  drawFigures(session);

  let marked = [];
  const mark = (nodes) => {
    for (const node of marked) node.classList.remove("marked");
    for (const node of nodes) node.classList.add("marked");
    marked = nodes;
  };
  const nodes = drawConversation(session, (position) => {
    showDetail(tokenDetail(session, position));
    const index = Math.floor(position / session.page_positions);
    mark([...document.querySelectorAll("#groups .cells")].map((cells) => cells.children[index]));
  });
  drawCache(session, other, (page, detail) => {
    showDetail(detail);
    const begin = page.index * session.page_positions;
    mark(nodes.slice(begin, begin + page.valid));
  });
  drawNext(session);
  drawSizes(session);
  drawElements(session, other);
  drawProof(session);
  drawParting(session, other, difference, showDetail);
  if (session.count > 0) {
    showDetail(tokenDetail(session, session.count - 1));
    byId("detail").classList.remove("open"); // on narrow screens it opens with the first touch
  }
}

drawPage(JSON.parse(byId("data").textContent));
