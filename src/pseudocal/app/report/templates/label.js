"use strict";
// Names of files, columns and classes are others' text: they are set with textContent, never as markup.
const FEW = 10; // classes: as many as there are digits; more are searched
const SHOWN = 1000; // classes at a time
const { chosen, unit, classes, synonyms, labels, others, sampling, guards } = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const search = element("search");
const few = classes.length <= FEW;
const fine = matchMedia("(pointer: fine)").matches; // where a focused field opens no keyboard on the screen

const keys = keysOf(classes);
const choices = classes.map((text, i) => choice(text, labels[i], few ? keys[i] : "", synonyms[i]));
const otherChoices = others.map((text, i) => choice(text, text, freeKey(["?*&", "-!#"][i])));
const byLabel = new Map([...choices, ...otherChoices].map((one) => [one.label, one]));

const given = chosen.map((input) => stored(input.key)); // labels, undefined where there is none yet
const past = []; // the label before each change: [input, label]
let at = 0; // the input that is shown; past the last one is the end
let matches = choices;
let marked; // the match that Enter takes, if any
let saved = ""; // the file as it was saved last

// --- labels, and where they are kept

function stored(key) {
  try {
    const label = localStorage.getItem(key);
    return byLabel.has(label) ? label : undefined;
  } catch {
    warn();
    return undefined;
  }
}

function put(i, label) {
  given[i] = label;
  try {
    if (label === undefined) localStorage.removeItem(chosen[i].key);
    else localStorage.setItem(chosen[i].key, label);
  } catch {
    warn();
  }
}

function warn() {
  element("warning").hidden = false;
}

function give(label) {
  if (at === chosen.length) return;
  past.push([at, given[at]]);
  put(at, label);
  go(nextOpen(at));
}

function undo() {
  if (!past.length) return;
  const [i, label] = past.pop();
  put(i, label);
  go(i);
}

function nextOpen(from) {
  const open = [...chosen.keys()].filter((i) => given[i] === undefined);
  return open.find((i) => i > from) ?? open[0] ?? chosen.length;
}

// --- the file

function cell(text) {
  // or a spreadsheet would calculate it: see csv_cell in tables.py
  const guarded = text.replace(new RegExp(guards.within, "g"), "$1'").replace(new RegExp(guards.start), "'");
  return `"${guarded.replaceAll('"', '""')}"`;
}

function table() {
  const spot = chosen[0].pixel ? ["y", "x"] : [];
  const header = ["file", ...spot, "label", ...(sampling ? ["sampling"] : [])];
  const drawn = sampling ? [sampling] : []; // the guarantee of a threshold depends on it
  const rows = chosen.flatMap(({ name, pixel }, i) =>
    given[i] === undefined ? [] : [[name, ...(pixel ?? []).map(String), given[i], ...drawn]],
  );
  return [header, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function save() {
  saved = table();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([saved], { type: "text/csv" }));
  link.download = "labels.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  show();
  say(`Saved ${count(done())} as labels.csv.`);
}

// --- what is shown

function choice(text, label, key, synonyms = []) {
  const button = made("button", text);
  button.type = "button";
  button.addEventListener("click", (event) => {
    if (event.detail < 2) give(label); // the second click of a double click would label the next input
  });
  if (key) {
    const sign = made("kbd", key);
    sign.ariaHidden = "true"; // aria-keyshortcuts says it
    button.append(sign);
    button.setAttribute("aria-keyshortcuts", key);
  }
  return { text, label, key, button, names: [text, ...synonyms].map(folded) };
}

function made(tag, text, name = "") {
  const one = document.createElement(tag);
  one.textContent = text;
  one.className = name;
  return one;
}

function done() {
  return given.filter((label) => label !== undefined).length;
}

function count(n) {
  return n === 1 ? "1 label" : `${n} labels`;
}

function say(text) {
  element("status").textContent = text;
}

function go(i) {
  at = Math.max(0, Math.min(i, chosen.length));
  search.value = "";
  show();
  find();
  element("classes").scrollTop = 0;
  if (at === chosen.length) element("save").focus();
  else if (!few && fine) search.focus({ preventScroll: true });
  say(at === chosen.length ? element("prompt").textContent : element("where").textContent);
}

function show() {
  const ended = at === chosen.length;
  element("work").hidden = ended;
  element("end").hidden = !ended;
  element("prompt").textContent = ended ? summary() : chosen[at].pixel ? "What is at the mark?" : "What is this?";
  element("where").textContent = ended ? "Your labels" : `Label ${chosen.length} ${unit}: ${at + 1} of ${chosen.length}`;
  element("count").textContent = `${done()} of ${chosen.length} labelled`;
  element("bar").value = done();
  element("back").disabled = at === 0;
  element("next").disabled = ended;
  element("next").firstChild.data = given[at] === undefined ? "Skip " : "Next ";
  element("undo").disabled = !past.length;
  element("save").disabled = !done();
  element("save").classList.toggle("ready", done() === chosen.length && saved !== table());
  if (ended) showEnd();
  else showInput(chosen[at]);
}

function showInput(input) {
  const { image, crop, cells, unreadable } = input;
  const name = called(input);
  showImage(element("image"), image, `The image to label: ${name}`);
  showImage(element("crop"), crop, "The same, enlarged around the mark");
  element("unreadable").hidden = !unreadable;
  element("row").hidden = !cells.length;
  element("row").scrollTop = 0;
  element("row").querySelector("tbody").replaceChildren(...cells.map(cellRow));
  element("name").textContent = name;
  for (const { label, button } of byLabel.values()) button.setAttribute("aria-pressed", label === given[at]);
  const next = chosen[at + 1]?.image;
  if (next) new Image().src = next; // decoded before it is needed
}

function called({ name, title, pixel }) {
  if (title) return title; // the name would tell the class
  return pixel ? `${name} (y ${pixel[0]}, x ${pixel[1]})` : name;
}

function showImage(image, address, alt) {
  image.hidden = !address;
  image.alt = address ? alt : "";
  if (!address) image.removeAttribute("src");
  else if (image.src !== address) image.src = address;
}

function cellRow([column, value]) {
  const row = document.createElement("tr");
  const head = made("th", column);
  head.scope = "row";
  row.append(head, made("td", value));
  return row;
}

function summary() {
  const open = chosen.length - done();
  return open ? `${open} of ${chosen.length} without a label` : `All ${chosen.length} labelled`;
}

function showEnd() {
  const notClasses = others.map((text) => [given.filter((label) => label === text).length, text]).filter(([n]) => n);
  element("end-text").textContent =
    (saved === table() ? "Saved to your downloads as labels.csv. " : `Save them as labels.csv: pseudocal ${sampling ? "threshold" : "refine"} reads it. `) +
    (notClasses.length ? `${notClasses.map(([n, text]) => `${n} × ${text}`).join(", ")}. ` : "") +
    "Choose an input below to label it again.";
  element("review").replaceChildren(...chosen.map(reviewed));
}

function reviewed(input, i) {
  const button = document.createElement("button");
  button.type = "button";
  if (input.image) {
    const image = made("img", "");
    image.alt = "";
    image.loading = "lazy";
    image.src = input.crop ?? input.image;
    button.append(image);
  }
  const said = given[i];
  const text = said === undefined ? made("span", "open", "said open") : made("span", byLabel.get(said).text, "said");
  text.append(made("span", called(input), "name"));
  button.append(text);
  button.addEventListener("click", () => go(i));
  const item = document.createElement("li");
  item.append(button);
  return item;
}

// --- search

function folded(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

function rank(text, query) {
  if (text === query) return 0;
  if (text.startsWith(query)) return 1;
  return text.split(/[^\p{L}\p{N}]+/u).some((word) => word.startsWith(query)) ? 2 : 3;
}

function find() {
  const query = folded(search.value.trim());
  const words = query.split(/\s+/);
  matches = choices.filter((one) => words.every((word) => one.names.some((name) => name.includes(word))));
  if (query) {
    const ranks = new Map(matches.map((one) => [one, Math.min(...one.names.map((name) => rank(name, query)))]));
    matches.sort((one, other) => ranks.get(one) - ranks.get(other)); // stable: else in the model's order
  }
  element("classes").replaceChildren(...matches.slice(0, SHOWN).map((one) => one.button));
  mark(query ? matches[0] : undefined);
}

function mark(one) {
  marked?.button.classList.remove("first");
  marked = one;
  marked?.button.classList.add("first");
  marked?.button.scrollIntoView({ block: "nearest" });
  const found = matches.length === 1 ? "1 class" : `${matches.length || "no"} classes`;
  const more = matches.length > SHOWN ? `, the first ${SHOWN} are shown` : "";
  element("hint").textContent = found + more + (marked ? `; Enter takes ${marked.text}` : "");
}

function markNext(step) {
  const last = Math.min(matches.length, SHOWN) - 1;
  mark(matches[Math.max(0, Math.min(last, matches.indexOf(marked) + step))]);
}

// --- keys

function keysOf(names) {
  if (names.every((name) => /^[0-9]$/.test(name))) return names; // the key of the class "7" is 7
  const numbers = names.some((name) => /^[-+.]?[0-9]/.test(name)); // then a digit would seem to mean one of them
  return numbers ? "abcdefghij" : "1234567890";
}

function freeKey(some) {
  return [...some].find((key) => !classes.some((name) => name.startsWith(key))) ?? ""; // a name may be typed
}

function nothing() {}

// What a key does here; undefined leaves it to the browser. A key that is held down labels once.
function action(event) {
  const { key, repeat } = event;
  if (event.altKey || event.isComposing) return undefined;
  const written = search.value !== ""; // then most keys belong to the text
  if (event.ctrlKey || event.metaKey) {
    if (key.toLowerCase() === "s") return done() && !repeat ? save : nothing;
    return key.toLowerCase() === "z" && !event.shiftKey && !written ? undo : undefined;
  }
  if (!written) {
    if (key === "ArrowLeft") return () => go(at - 1);
    if (key === "ArrowRight") return () => go(at + 1);
    if (key === "Backspace") return repeat ? nothing : () => go(at - 1); // held down, it has just deleted a text
    const chosen = [...byLabel.values()].find((one) => one.key === key);
    if (chosen) return repeat ? nothing : () => give(chosen.label);
  }
  const onButton = document.activeElement instanceof HTMLButtonElement;
  if (onButton && (key === "Enter" || key === " ")) return repeat ? nothing : undefined;
  return few || at === chosen.length ? undefined : searchAction(key, repeat);
}

function searchAction(key, repeat) {
  if (key === "ArrowDown") return () => markNext(1);
  if (key === "ArrowUp") return () => markNext(-1);
  if (key === "Enter") return repeat || !marked ? nothing : () => give(marked.label);
  if (key === "Escape") {
    search.value = "";
    return find;
  }
  if (key.length === 1) search.focus(); // the letter goes there
  return undefined;
}

document.addEventListener("keydown", (event) => {
  const act = action(event);
  if (!act) return;
  event.preventDefault();
  act();
});
search.addEventListener("input", find);
element("back").addEventListener("click", () => go(at - 1));
element("next").addEventListener("click", () => go(at + 1));
element("undo").addEventListener("click", undo);
element("save").addEventListener("click", save);
addEventListener("beforeunload", (event) => {
  if (!element("warning").hidden && done() && saved !== table()) event.preventDefault();
});

document.body.classList.toggle("few", few);
element("finder").hidden = few;
element("others").append(...otherChoices.map((one) => one.button));
go(nextOpen(-1));
document.body.dataset.ready = "yes";
