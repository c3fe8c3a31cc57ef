"use strict";
// Names of files, columns and classes are others' text: they are set with textContent, never as markup.
const FEW = 10; // classes: as many as there are digits; more are searched
const SHOWN = 1000; // classes at a time
const { questions, classes, labels, others, guards } = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const search = element("search");
const few = classes.length <= FEW;
const fine = matchMedia("(pointer: fine)").matches; // where a focused field opens no keyboard on the screen

const keys = keysOf(classes);
const choices = classes.map((text, i) => choice(text, labels[i], few ? keys[i] : ""));
const otherChoices = others.map((text, i) => choice(text, text, freeKey(["?*&", "-!#"][i])));
const byLabel = new Map([...choices, ...otherChoices].map((one) => [one.label, one]));

const answers = questions.map((question) => stored(question.key)); // labels, undefined where there is none yet
const past = []; // what was answered before each change: [question, label]
let at = 0; // the question that is shown; past the last one is the end
let matches = choices;
let marked; // the match that Enter takes, if any
let saved = ""; // the file as it was saved last

// --- answers, and where they are kept

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
  answers[i] = label;
  try {
    if (label === undefined) localStorage.removeItem(questions[i].key);
    else localStorage.setItem(questions[i].key, label);
  } catch {
    warn();
  }
}

function warn() {
  element("warning").hidden = false;
}

function answer(label) {
  if (at === questions.length) return;
  past.push([at, answers[at]]);
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
  const open = [...questions.keys()].filter((i) => answers[i] === undefined);
  return open.find((i) => i > from) ?? open[0] ?? questions.length;
}

// --- the file

function cell(text) {
  // or a spreadsheet would calculate it: see csv_cell in app/inputs/tables.py
  const guarded = text.replace(new RegExp(guards.within, "g"), "$1'").replace(new RegExp(guards.start), "'");
  return `"${guarded.replaceAll('"', '""')}"`;
}

function table() {
  const header = questions[0].pixel ? ["file", "y", "x", "label"] : ["file", "label"];
  const rows = questions.flatMap(({ name, pixel }, i) =>
    answers[i] === undefined ? [] : [[name, ...(pixel ?? []).map(String), answers[i]]],
  );
  return [header, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function save() {
  saved = table();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([saved], { type: "text/csv" }));
  link.download = "answers.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  show();
  say(`Saved ${count(done())} as answers.csv.`);
}

// --- what is shown

function choice(text, label, key) {
  const button = made("button", text);
  button.type = "button";
  button.addEventListener("click", (event) => {
    if (event.detail < 2) answer(label); // the second click of a double click would answer the next question
  });
  if (key) {
    const sign = made("kbd", key);
    sign.ariaHidden = "true"; // aria-keyshortcuts says it
    button.append(sign);
    button.setAttribute("aria-keyshortcuts", key);
  }
  return { text, label, key, button, folded: folded(text) };
}

function made(tag, text, name = "") {
  const one = document.createElement(tag);
  one.textContent = text;
  one.className = name;
  return one;
}

function done() {
  return answers.filter((label) => label !== undefined).length;
}

function count(n) {
  return n === 1 ? "1 answer" : `${n} answers`;
}

function say(text) {
  element("status").textContent = text;
}

function go(i) {
  at = Math.max(0, Math.min(i, questions.length));
  search.value = "";
  show();
  find();
  element("classes").scrollTop = 0;
  if (at === questions.length) element("save").focus();
  else if (!few && fine) search.focus({ preventScroll: true });
  say(at === questions.length ? element("prompt").textContent : element("where").textContent);
}

function show() {
  const ended = at === questions.length;
  element("work").hidden = ended;
  element("end").hidden = !ended;
  element("prompt").textContent = ended ? summary() : questions[at].pixel ? "What is at the mark?" : "What is this?";
  element("where").textContent = ended ? "Your answers" : `Question ${at + 1} of ${questions.length}`;
  element("count").textContent = `${done()} of ${questions.length} answered`;
  element("bar").value = done();
  element("back").disabled = at === 0;
  element("next").disabled = ended;
  element("next").firstChild.data = answers[at] === undefined ? "Skip " : "Next ";
  element("undo").disabled = !past.length;
  element("save").disabled = !done();
  element("save").classList.toggle("ready", done() === questions.length && saved !== table());
  showGap();
  if (ended) showEnd();
  else showQuestion(questions[at]);
}

// A file that was saved with an answer after an open question: the answers are no fair sample.
function showGap() {
  const open = answers.indexOf(undefined);
  element("gap").hidden = open < 0 || done() <= open || saved !== table();
  element("gap").textContent =
    `Question ${open + 1} is open and a later one is not: pseudocal refine refuses such a file. ` +
    `Answer it, if only with "${others[0]}", and save again.`;
}

function showQuestion(question) {
  const { image, crop, cells, unreadable } = question;
  const name = called(question);
  showImage(element("image"), image, `The image to label: ${name}`);
  showImage(element("crop"), crop, "The same, enlarged around the mark");
  element("unreadable").hidden = !unreadable;
  element("row").hidden = !cells.length;
  element("row").scrollTop = 0;
  element("row").querySelector("tbody").replaceChildren(...cells.map(cellRow));
  element("name").textContent = name;
  for (const { label, button } of byLabel.values()) button.setAttribute("aria-pressed", label === answers[at]);
  const next = questions[at + 1]?.image;
  if (next) new Image().src = next; // decoded before it is needed
}

function called({ name, pixel }) {
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
  const open = questions.length - done();
  return open ? `${open} of ${questions.length} still open` : `All ${questions.length} answered`;
}

function showEnd() {
  const unsure = others.map((text) => [answers.filter((label) => label === text).length, text]).filter(([n]) => n);
  element("end-text").textContent =
    (saved === table() ? "Saved among this browser's downloads. " : "Save them as answers.csv: pseudocal refine reads it. ") +
    (unsure.length ? `${unsure.map(([n, text]) => `${n} × ${text}`).join(", ")}. ` : "") +
    "Choose a question below to answer it again.";
  element("review").replaceChildren(...questions.map(reviewed));
}

function reviewed(question, i) {
  const button = document.createElement("button");
  button.type = "button";
  if (question.image) {
    const image = made("img", "");
    image.alt = "";
    image.loading = "lazy";
    image.src = question.crop ?? question.image;
    button.append(image);
  }
  const said = answers[i];
  const text = said === undefined ? made("span", "open", "said open") : made("span", byLabel.get(said).text, "said");
  text.append(made("span", called(question), "name"));
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
  matches = choices.filter((one) => words.every((word) => one.folded.includes(word)));
  if (query) {
    const ranks = new Map(matches.map((one) => [one, rank(one.folded, query)]));
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

// What a key does here; undefined leaves it to the browser. A key that is held down answers once.
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
    if (chosen) return repeat ? nothing : () => answer(chosen.label);
  }
  const onButton = document.activeElement instanceof HTMLButtonElement;
  if (onButton && (key === "Enter" || key === " ")) return repeat ? nothing : undefined;
  return few || at === questions.length ? undefined : searchAction(key, repeat);
}

function searchAction(key, repeat) {
  if (key === "ArrowDown") return () => markNext(1);
  if (key === "ArrowUp") return () => markNext(-1);
  if (key === "Enter") return repeat || !marked ? nothing : () => answer(marked.label);
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
