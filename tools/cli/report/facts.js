// Figures, likely next tokens, sizes, the elements and the digests.
const SECTION_NAMES = {
  run: "keys and values", nodes: "tokens, texts, page tables", identity: "the model's identity",
  hidden: "final hidden state", logits_row: "row of logits", manifest: "manifest",
};

const ELEMENTS = [
  ["KV cache", "keys and values of every position that a later one may look at"],
  ["Token embeddings", "what a token looks like to the first layer"],
  ["Positional state", "the next position, and how positions turn into phases"],
  ["Input token buffer", "every token in order, and where it came from"],
  ["Attention mask", "which positions see which"],
  ["Model config", "hyperparameters, and the settings tokens were drawn with"],
  ["LayerNorm state", "the weights of all norms"],
  ["Attention weights", "the weights that keys and values come from, layer by layer"],
  ["Logits", "what the last position says about the next token"],
  ["Tokenizer state", "the vocabulary and its rules"],
  ["KV format version", "under which rules the numbers were computed and laid out"],
  ["Prompt injection meta", "which tokens the template added, and whose turn it was"],
];

function drawFigures(session) {
  const cache = session.element(1);
  const drawn = session.element(4).sources.sampled;
  const figures = [
    [number(session.count), session.count === 1 ? "token" : "tokens"],
    [number(drawn), "drawn"],
    [size(session.file_bytes), "in the file"],
  ];
  if (session.count > 0) figures.push([number(session.file_bytes / session.count), "bytes a token"]);
  if (cache.stored_bytes > 0 && cache.stored_bytes < cache.bytes) {
    figures.push([percent(cache.stored_bytes / cache.bytes), "of the size of keys and values"]);
  }
  if (session.element(11).commit) {
    figures.push([number(session.element(11).commit),
      session.element(11).commit === 1 ? "commit" : "commits"]);
  }
  if (session.older) figures.push(["damaged", "last commit: this is the one before it"]);
  for (const [value, name] of figures) {
    byId("figures").append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  }
}

// The 32 bytes as bars: two files that look alike are very likely, not certainly, the same.
function drawBars(digest) {
  const canvas = byId("bars");
  const paint = () => {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = getComputedStyle(canvas).color;
    const step = canvas.width / digest.length;
    for (let i = 0; i < digest.length; i++) {
      const height = (0.08 + 0.92 * parseInt(digest[i], 16) / 15) * canvas.height;
      context.fillRect(i * step, canvas.height - height, step * 0.62, height);
    }
  };
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
}

function drawNext(session) {
  const top = session.element(9).top;
  if (top.length === 0) {
    byId("next").hidden = true;
    return;
  }
  const SHOWN = 8;
  const highest = top[0].logit;
  const weights = top.map(({logit}) => (logit === null ? 0 : Math.exp(logit - highest)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  byId("next-note").textContent = `The best of the ${top.length} logits that the file keeps, as ` +
    "shares of these at temperature 1.";
  const known = new Map(session.texts);
  top.slice(0, SHOWN).forEach(({token, text}, i) => {
    const share = weights[i] / total;
    const bar = make("span", {class: "bar"});
    bar.style.setProperty("--share", share);
    byId("next-list").append(make("li", {},
        make("code", {}, known.has(token) ? readable(text) || "\u2205" : `#${token}`), bar,
        make("small", {}, percent(share))));
  });
}

function shortNumber(value) {
  return value >= 100 ? number(value) : value.toFixed(value >= 10 ? 1 : 2);
}

function drawSizes(session) {
  const rows = session.sections.map(([name, count, stored, raw]) =>
    [name, count, stored, raw]);
  const told = rows.reduce((sum, row) => sum + row[2], 0);
  rows.sort((a, b) => b[2] - a[2]);
  rows.push(["header, frames, earlier commits", "", session.file_bytes - told, ""]);
  const kinds = Object.keys(SECTION_NAMES);
  const table = byId("sizes-table");
  table.append(make("thead", {}, make("tr", {}, ...["", "sections", "in the file", "of its size",
    "a token"].map((title) => make("th", {scope: "col"}, title)))));
  const body = make("tbody");
  rows.forEach(([name, count, stored, raw]) => {
    const colour = `kind-${kinds.includes(name) ? kinds.indexOf(name) : kinds.length}`;
    const bar = make("i", {class: colour});
    bar.style.flexGrow = stored;
    byId("stack").append(bar);
    body.append(make("tr", {}, make("th", {scope: "row"}, make("i", {class: colour}), SECTION_NAMES[name] || name),
        make("td", {}, count === "" ? "" : number(count)), make("td", {}, size(stored)),
        make("td", {}, raw ? percent(stored / raw) : ""),
        make("td", {}, session.count ? shortNumber(stored / session.count) : "")));
  });
  table.append(body);
}

// Any value of an element's JSON, as nested lists; digests in full.
function valueNode(value) {
  if (value === null || value === "") return make("span", {class: "none"}, "none");
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item !== "object")) {
      const digests = value.length > 0 && /^[0-9a-f]{64}$/.test(value[0]);
      return digests ? make("ol", {start: 0}, ...value.map((item) => make("li", {}, make("code", {}, item))))
        : make("code", {}, value.length ? value.join(" ") : "none");
    }
    const LIST_MAX = 8;
    const items = value.slice(0, LIST_MAX).map((item) => make("li", {}, valueNode(item)));
    if (value.length > LIST_MAX) items.push(make("li", {class: "none"}, `and ${value.length - LIST_MAX} more`));
    return make("ol", {start: 0}, ...items);
  }
  if (typeof value === "object") {
    return make("dl", {}, ...Object.entries(value).map(([name, item]) =>
      make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, valueNode(item)))));
  }
  return make("code", {}, typeof value === "string" ? readable(value) : String(value));
}

function elementDigest(session, number) {
  const element = session.element(number);
  return {1: session.digest, 6: session.model, 8: element.head, 11: session.root}[number] || element.digest;
}

const DIGEST_OF = {1: "state", 6: "model", 8: "output head", 11: "root"};

// Checkpoints before it do not count.
function lastState(recurrent) {
  if (!recurrent) return null;
  const {states, ...shape} = recurrent;
  return [shape, states.length === 0 ? null : states[states.length - 1].digest];
}

// What two states must share in an element to be the same there: not how a file stores it.
function essence(session, number) {
  const {row, commit, ...content} = session.element(number);
  const whole = {
    1: () => [session.groups.map(({layers, window, pages}) =>
      [layers, window, pages.map(({valid, digest}) => [valid, digest])]), lastState(content.recurrent)],
    4: () => session.tokens,
    12: () => [session.spans, content.pending_system],
  }[number];
  return JSON.stringify(whole ? whole() : content);
}

function drawElements(session, other) {
  ELEMENTS.forEach(([name, meaning], index) => {
    const number = index + 1;
    const {element, name: ownName, ...content} = session.element(number);
    const digest = elementDigest(session, number);
    const title = make("summary", {}, make("b", {}, String(number < 9 ? number : `+${number - 8}`)),
        make("span", {class: "what"}, make("strong", {}, name), meaning));
    if (other !== null) {
      const same = essence(session, number) === essence(other, number);
      title.append(make("em", {class: same ? "same" : "differs"}, same ? "same" : "differs"));
    }
    title.append(make("code", {class: "digest"}, digest
      ? `${digest.slice(0, 16)}\u2026${DIGEST_OF[number] ? " " + DIGEST_OF[number] : ""}` : ""));
    byId("elements-list").append(make("details", {}, title, valueNode(content)));
  });
}

function drawProof(session) {
  const digests = {
    root: [session.root, "covers every byte of the file that has a meaning"],
    state: [session.digest, "equal digests: the same from here on, whatever history, device or file"],
    model: [session.model, "identity of all that determines results"],
  };
  for (const [name, [digest, meaning]] of Object.entries(digests)) {
    byId("digests").append(make("div", {}, make("dt", {}, name, make("small", {}, meaning)),
        make("dd", {}, make("code", {class: "whole"}, digest))));
  }
  const steps = [
    ["Keep the root digest somewhere else.", "Whoever has these 32 bytes can tell this file from any other."],
    [`stasis inspect ${session.name}`, "prints the root of the file in hand. The same root: the same tokens, " +
      "settings, digests; keys and values that do not fit these are refused by every load."],
    [`stasis verify ${session.name} MODEL`, "computes every key and value again from the tokens, draws the drawn " +
      "tokens again, and compares every bit."],
    [`stasis verify ${session.name} MODEL --audit 5`, "does so for a random share of the pages, and " +
      "says what that proves."],
    [`stasis replay ${session.name} MODEL`, "tells where and how the model differs from the file, and what it would " +
      "have said instead."],
  ];
  steps.forEach(([what, meaning], index) =>
    byId("steps").append(make("li", {}, make(index === 0 ? "strong" : "code", {}, what), " ", meaning)));
}
