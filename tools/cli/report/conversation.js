// The log: turns, tokens, the ribbon above them, and what is known of the selected token.
// Tokens that are laid out together, in a long log only when they come into view: up to the next end
// of a line, so that no line is cut, unless that is far.
const PIECE_TOKENS = 256, PIECE_TOKENS_MAX = 2048;
const LONG_TOKENS = 3000; // a log of more scrolls in its own frame

function tokenClass(span) {
  return `t ${span.source}${span.role === "system" ? " system" : ""}`;
}

function tokenNode(session, position) {
  const shown = session.shown[position];
  const node = make("span", {class: tokenClass(session.spanOf(position))});
  if (shown.missing) {
    node.dataset.label = session.tokens[position];
  } else if (shown.text === null) {
    node.dataset.label = shown.hex.toUpperCase();
    node.textContent = "\ufffd";
    node.classList.add("bytes");
  } else if (shown.text === "") {
    node.dataset.label = shown.split ? "\u00b7" : "\u2205";
  } else {
    node.textContent = shown.text;
    if (shown.text.includes("\n")) node.classList.add("line");
  }
  node.position = position;
  return node;
}

// Turns as the template cut them; without a template the whole log is one.
function turnsOf(session) {
  const turns = [];
  for (const span of session.spans) {
    const last = turns[turns.length - 1];
    if (!last || span.starts) turns.push({role: span.role, begin: span.begin, end: span.end});
    else last.end = span.end;
  }
  return turns;
}

function drawTurn(session, turn, nodes) {
  const text = make("div", {class: "text"});
  for (let at = turn.begin; at < turn.end;) {
    const piece = make("div", {class: "piece"});
    for (let count = 0, full = false; at < turn.end && !full; at++) {
      nodes[at] = tokenNode(session, at);
      piece.append(nodes[at]);
      count++;
      full = count >= PIECE_TOKENS_MAX ||
        (count >= PIECE_TOKENS && nodes[at].textContent.endsWith("\n"));
    }
    text.append(piece);
  }
  const role = turn.role === "none" ? "tokens" : turn.role;
  const range = `${number(turn.begin)}\u2013${number(turn.end - 1)}`;
  return make("article", {class: `turn ${turn.role}`},
      make("h3", {}, role, make("small", {}, range)), text);
}

function tokenDetail(session, position) {
  const span = session.spanOf(position);
  const shown = session.shown[position];
  const rows = [
    ["token", session.tokens[position]],
    ["position", number(position)],
    ["page", number(Math.floor(position / session.page_positions))],
    ["role", span.role],
  ];
  if (shown.hex) rows.push(["bytes", shown.hex.match(/../g).join(" ")]);
  if (span.sampling !== null) {
    const settings = session.sampling(span.sampling);
    rows.push(["seed", settings.seed]);
    rows.push(["temperature", settings.temperature === 0 ? "0, greedy"
        : Number(settings.temperature.toPrecision(6))]);
    const neutral = {top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1, frequency_penalty: 0,
      presence_penalty: 0, typical_p: 1, top_n_sigma: 0, xtc_probability: 0, dry_multiplier: 0,
      min_keep: 1};
    for (const [name, off] of Object.entries(neutral)) {
      if (settings[name] !== off) {
        rows.push([name.replaceAll("_", " "), Number(settings[name].toPrecision(6))]);
      }
    }
    if (settings.bias.length > 0) rows.push(["biases", settings.bias.length]);
    if (settings.constraint !== undefined) {
      const {kind, text} = session.element(6).constraints[settings.constraint];
      rows.push(["constraint", `${kind.replaceAll("_", " ")} ${readable(text.slice(0, 200))}`]);
    }
    if (settings.allowed) rows.push(["allowed", "a set of tokens"]);
  }
  const title = shown.text ? readable(shown.text) : shown.text === null ? "bytes" : "no text";
  return {title, kind: SOURCES[span.source], className: tokenClass(span), rows};
}

// Coloured lengths for the spans, all of the log across the width.
function ribbonOf(session, total = session.count) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${Math.max(total, 1)} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  for (const span of session.spans) {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    bar.setAttribute("class", tokenClass(span));
    bar.setAttribute("x", span.begin);
    bar.setAttribute("width", span.end - span.begin);
    bar.setAttribute("height", 1);
    svg.append(bar);
  }
  return svg;
}

function drawSources(session, log) {
  const counts = new Map();
  for (const span of session.spans) {
    counts.set(span.source, (counts.get(span.source) || 0) + span.end - span.begin);
  }
  for (const [source, meaning] of Object.entries(SOURCES)) {
    if (!counts.has(source)) continue;
    const key = make("button", {type: "button", class: source, "aria-pressed": "false"},
        meaning, make("small", {}, number(counts.get(source))));
    key.addEventListener("click", () => {
      const only = log.dataset.only === source ? "" : source;
      log.dataset.only = only;
      for (const each of byId("sources").children) {
        each.setAttribute("aria-pressed", String(each === key && only !== ""));
      }
    });
    byId("sources").append(key);
  }
}

// Draws the log. `select(position)` is called for the token that is pointed at or moved to.
function drawConversation(session, select) {
  const log = byId("log");
  const nodes = new Array(session.count);
  for (const turn of turnsOf(session)) log.append(drawTurn(session, turn, nodes));
  log.classList.toggle("long", session.count > LONG_TOKENS);
  if (session.count === 0) log.append(make("p", {class: "note"}, "The log is empty."));
  drawSources(session, log);

  let current = -1;
  const choose = (position, focus) => {
    if (current >= 0) nodes[current].tabIndex = -1;
    current = position;
    nodes[current].tabIndex = 0;
    if (focus) nodes[current].focus();
    select(position);
  };
  if (session.count > 0) nodes[0].tabIndex = 0;
  const pointed = (event) => event.target.closest(".t")?.position;
  log.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && pointed(event) !== undefined) select(pointed(event));
  });
  log.addEventListener("click", (event) => {
    if (pointed(event) !== undefined) choose(pointed(event), true);
  });
  log.addEventListener("focusin", (event) => {
    if (pointed(event) !== undefined && pointed(event) !== current) choose(pointed(event), false);
  });
  log.addEventListener("keydown", (event) => {
    const from = pointed(event);
    const span = from === undefined ? null : session.spanOf(from);
    const to = span && {
      ArrowRight: from + 1, ArrowLeft: from - 1, ArrowDown: span.end, ArrowUp: span.begin - 1,
      Home: 0, End: session.count - 1,
    }[event.key];
    if (to !== undefined && to !== null && nodes[to]) {
      event.preventDefault();
      choose(to, true);
    }
  });
  if (session.count > 0) {
    const ribbon = byId("ribbon");
    ribbon.append(ribbonOf(session));
    ribbon.addEventListener("click", (event) => {
      const box = ribbon.getBoundingClientRect();
      const at = Math.floor((event.clientX - box.left) / box.width * session.count);
      const node = nodes[Math.max(0, Math.min(at, session.count - 1))];
      node.scrollIntoView({block: "center"});
      choose(node.position, true);
    });
  }
  return nodes;
}
