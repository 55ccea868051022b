// A session as the page sees it: texts of tokens, whose they are, where pages lie. Draws nothing.
const SOURCES = {
  prompt: "given as a token",
  template: "added by the chat template",
  text: "text of a message",
  sampled: "drawn by the model",
};

function bytesOf(hex) {
  return Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));
}

function strictText(bytes) {
  try {
    return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes);
  } catch {
    return null;
  }
}

// What each position adds to the text. A character may be split over several tokens: the first of
// them shows it, the others show that they belong to it. Bytes that are no text stay bytes.
function showTexts(tokens, known) {
  const parts = new Map();
  for (const [token, hex] of known) {
    const bytes = bytesOf(hex);
    parts.set(token, {bytes, hex, text: strictText(bytes)});
  }
  const none = {bytes: new Uint8Array(0), hex: "", text: null, missing: true};
  const shown = tokens.map((token) => parts.get(token) || none);
  for (let i = 0; i < shown.length; i++) {
    if (shown[i].text !== null || shown[i].missing) continue;
    const joined = [];
    for (let end = i; end < Math.min(i + 4, shown.length) && shown[end].text === null; end++) {
      joined.push(...shown[end].bytes);
      const text = strictText(Uint8Array.from(joined));
      if (text === null) continue;
      for (let at = i; at <= end; at++) {
        shown[at] = {...shown[at], text: at === i ? text : "", split: true};
      }
      i = end;
      break;
    }
  }
  return shown;
}

function readSession(json) {
  const count = json.tokens.length;
  const spanAt = new Uint32Array(count);
  const spans = json.spans.map(([begin, end, source, role, starts, sampling], index) => {
    spanAt.fill(index, begin, end);
    return {begin, end, source, role, starts, sampling};
  });
  const element = (number) => json.elements[number - 1];
  const groups = element(1).groups.map((group) => ({...group, pages: []}));
  for (const [group, index, valid, bytes, stored, runs, commit, codec, digest] of json.pages) {
    groups[group].pages.push({group, index, valid, bytes, stored, runs, commit, codec, digest});
  }
  return {
    ...json,
    count,
    spans,
    groups,
    element,
    shown: showTexts(json.tokens, json.texts),
    spanOf: (position) => spans[spanAt[position]],
    sampling: (index) => element(6).samplings[index],
    text(begin, end) {
      return this.shown.slice(begin, end).map((part) => part.text ?? "").join("");
    },
  };
}

// ---- Small things that every part needs ----
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);

function number(value) {
  return value.toLocaleString("en", {maximumFractionDigits: 0}).replaceAll(",", "\u202f");
}

function several(value, one, many = one + "s") {
  return `${number(value)} ${value === 1 ? one : many}`;
}

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${unit === 0 ? number(bytes) : bytes.toPrecision(3)} ${units[unit]}`;
}

function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share > 0.999 && share < 1) return "> 99.9 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}
const grouped = (digest) => digest.match(/.{1,8}/g).join(" ");
const readable = (text) => JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
