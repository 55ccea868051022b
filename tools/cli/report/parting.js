// Where two sessions part: both texts from there on, and the pages that they share.
const BEFORE_TOKENS = 40, AFTER_TOKENS = 240;

function commonTokens(a, b) {
  const limit = Math.min(a.count, b.count);
  for (let i = 0; i < limit; i++) {
    if (a.tokens[i] !== b.tokens[i]) return i;
  }
  return limit;
}

function sharedPages(a, b) {
  let shared = 0, all = 0;
  a.groups.forEach((group, index) => group.pages.forEach((page) => {
    const twin = b.groups[index] && b.groups[index].pages[page.index];
    all++;
    if (twin && twin.digest === page.digest) shared++;
  }));
  return [shared, all];
}

function sideOf(session, common, tell) {
  const text = make("div", {class: "text"});
  const begin = Math.max(0, common - BEFORE_TOKENS);
  const before = make("span", {class: "before"}, begin > 0 ? "\u2026" : "");
  for (let i = begin; i < common; i++) before.append(tokenNode(session, i));
  text.append(before);
  const end = Math.min(session.count, common + AFTER_TOKENS);
  if (common < session.count) text.append(make("span", {class: "cut", role: "img", "aria-label": "here they part"}));
  for (let i = common; i < end; i++) text.append(tokenNode(session, i));
  if (end < session.count) text.append(`\u2026 ${number(session.count - end)} more`);
  if (common === session.count) text.append(make("span", {class: "note"}, " ends here"));
  for (const event of ["pointerover", "click"]) {
    text.addEventListener(event, ({target}) => {
      if (target.position !== undefined) tell(tokenDetail(session, target.position));
    });
  }
  return make("div", {class: "side"}, make("h3", {}, session.name,
      make("small", {}, several(session.count, "token"))), text);
}

function drawParting(session, other, difference, tell) {
  if (other === null) return;
  byId("parting").hidden = byId("to-parting").hidden = false;
  const common = commonTokens(session, other);
  const [shared, all] = sharedPages(session, other);
  const position = (one) => (common < one.count ? one.shown[common].text || `#${one.tokens[common]}` : null);
  const [here, there] = [position(session), position(other)];
  let lead = `Both begin with the same ${several(common, "token")}.`;
  if (common === 0) lead = "They part at the first token.";
  if (difference.equal) lead = "The two hold the same state, bit for bit.";
  else if (here === null && there === null) lead = `Both hold the same ${several(common, "token")}.`;
  else if (here === null || there === null) {
    lead += ` ${here === null ? session.name : other.name} ends there, the other goes on.`;
  } else {
    lead += ` At position ${number(common)} one says \u201c${readable(here)}\u201d, the other \u201c${readable(there)}\u201d.`;
  }
  byId("parting-lead").textContent = lead;
  byId("parting-note").textContent = `${number(shared)} of ${several(all, "page")} hold the same bits in both files.` +
    (difference.equal ? "" : ` The first difference that counts: ${difference.message}.`);
  const total = Math.max(session.count, other.count);
  for (const one of [session, other]) {
    const lane = make("div", {class: "lane"}, ribbonOf(one, total));
    const same = make("i", {class: "same-part"});
    same.style.width = `${100 * common / Math.max(total, 1)}%`;
    lane.append(same);
    byId("parting-lanes").append(lane);
  }
  byId("parting-texts").append(sideOf(session, common, tell), sideOf(other, common, tell));
}
