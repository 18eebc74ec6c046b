// The dashboard works without this script. It keeps pages up to date, and adds keys and copying.
"use strict";

document.documentElement.classList.add("js");

// Live regions ----------------------------------------------------------------------------------
// The server sends the changing part of the page again when it has changed. Only what differs is
// replaced, so that focus, selection, scroll positions, open details and half-typed input stay.

const live = document.getElementById("live");
let source = null;
let again = 0;
let patience = 5000;

function connect() {
  clearTimeout(again);
  if (!live || source || document.hidden || !live.firstElementChild) return;
  source = new EventSource(location.href);
  source.onopen = () => say("live");
  source.onmessage = (event) => {
    patience = 5000;
    say("live");
    update(event.data);
  };
  source.addEventListener("stale", (event) => say(event.data));
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return say("reconnecting");
    // refused, which a browser takes for final: the session has ended, or the service is busy
    disconnect();
    say("not live");
    again = setTimeout(connect, patience);
    patience = Math.min(2 * patience, 60000);
  };
}

function disconnect() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
}

function say(state) {
  const shown = document.getElementById("live-state");
  if (shown && shown.textContent !== state) shown.textContent = state;
}

function update(html) {
  const made = new DOMParser().parseFromString(html, "text/html").body;
  for (const field of made.querySelectorAll('input[name="form_token"]'))
    field.setAttribute("value", document.documentElement.dataset.formToken);
  morph(live, made);
  live.dispatchEvent(new CustomEvent("live", { bubbles: true }));
}

function morph(old, made) {
  const wanted = new Set([...made.children].map(keyOf).filter(Boolean));
  const keyed = new Map([...old.children].filter(keyOf).map((node) => [keyOf(node), node]));
  let at = old.firstChild;
  for (const next of [...made.childNodes]) {
    const key = keyOf(next);
    const found = key ? keyed.get(key) : partner(at, next);
    if (!found || found.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    keyed.delete(key);
    while (at && at !== found && !wanted.has(keyOf(at))) at = drop(at);
    if (at === found) at = at.nextSibling;
    else if (old.moveBefore) old.moveBefore(found, at); // keeps the focus in what is moved
    else old.insertBefore(found, at);
    if (found.nodeType !== 1) {
      if (found.nodeValue !== next.nodeValue) found.nodeValue = next.nodeValue;
    } else if (!found.isEqualNode(next)) {
      attributes(found, next);
      morph(found, next);
    }
  }
  while (at) at = drop(at);
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// the node that a new one without a key replaces: the next one of the same kind
function partner(at, next) {
  for (let node = at, tries = 0; node && tries < 300; node = node.nextSibling, tries++)
    if (node.nodeName === next.nodeName && !keyOf(node)) return node;
  return null;
}

function keyOf(node) {
  return node.nodeType === 1 ? node.id || node.dataset.key || "" : "";
}

const kept = new Set(["open", "value", "checked", "selected", "class"]);

function attributes(old, made) {
  const edited = old.matches("input, select, textarea, details, dialog");
  for (const { name, value } of [...made.attributes])
    if (!(edited && kept.has(name)) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes])
    if (!made.hasAttribute(name) && !(edited && kept.has(name))) old.removeAttribute(name);
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);

// Times pass between two updates ------------------------------------------------------------------

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function ago(when) {
  const seconds = (Date.now() - when) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const [size, unit] = units.find(([least]) => Math.abs(seconds) >= least);
  const shown = `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
  return seconds > 0 ? `${shown} ago` : `in ${shown}`;
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[title]")) {
    const shown = ago(Date.parse(time.dateTime));
    if (time.textContent !== shown) time.textContent = shown;
  }
}, 1000);

// Keys --------------------------------------------------------------------------------------------

let leader = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || document.querySelector("dialog[open]")) return;
  const led = leader;
  leader = false;
  if (led) {
    const target = document.querySelector(`nav a[data-press="${CSS.escape(event.key)}"]`);
    if (target) location.assign(target.href);
  } else if (event.key === "g") {
    leader = true;
    setTimeout(() => (leader = false), 1500);
  } else if (event.key === "/") {
    const field = document.querySelector("[data-focus], main input[type=search], main input:not([type=hidden])");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "?") {
    document.getElementById("keys").showModal();
  }
});

// Copying, also over plain HTTP, where navigator.clipboard does not exist, and where it is denied -----

async function copy(text) {
  if (navigator.clipboard && isSecureContext) {
    try {
      return await navigator.clipboard.writeText(text);
    } catch {
      // denied by the browser's policy: select and copy instead
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    const from = button.dataset.copy ? document.getElementById(button.dataset.copy) : button;
    await copy(from.textContent);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1500);
  }
  const all = event.target.closest("[data-check-all]");
  if (all) for (const box of all.form.querySelectorAll("input[type=checkbox][name]")) box.checked = all.checked;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Navigation and filters ---------------------------------------------------------------------------

// where the pages do not fit in a row, the row is scrolled to the page that is shown
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// The server offers whole lines for the line that was sent; while one is typed, each term has offers.
const offers = document.querySelector("datalist[data-offers]");

function suggest(line) {
  const start = line.lastIndexOf(" ") + 1;
  const [before, term] = [line.slice(0, start), line.slice(start)];
  const said = new Set(before.split(" ").map((each) => each.split(":")[0]));
  const found = Object.entries(JSON.parse(offers.dataset.offers))
    .filter(([name]) => !said.has(name))
    .flatMap(([, terms]) => terms.filter((each) => each.startsWith(term)));
  offers.replaceChildren(...found.slice(0, 30).map((each) => new Option("", before + each)));
}

if (offers) document.querySelector("[list]").addEventListener("input", (event) => suggest(event.target.value));

connect();
