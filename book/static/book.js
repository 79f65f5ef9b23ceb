/* Predictions on a page: a field for the guess, told right or wrong, kept in the browser.

The page is a notebook's: a cell asks by predict("question", None), a later output says
"question" and, on the line below it, "  no guess yet: the answer is ...". That line is
hidden until the reader has guessed or asks for it. Without scripts all stays to read. */

"use strict";

const TOLD = /^ {2}no guess yet: (.*)$/;
const ANSWER = /^(?:the answer is (.*?)|the run says (.*?), theory (.*?))(, in any order)?(?:, give or take ([\d.]+) %)?$/;

/* --- what a guess means; see ddp_lab/kit/cell/answers.py --- */

/** Return the parts of a guess: numbers as numbers, all else as lower-case words. */
function parts(text) {
  const plain = text.toLowerCase().replace(/\branks? +(?=\d)/g, "")
    .replace(/(\d)\s*(?:%|[a-z]+)$/, "$1").replace(/[[\](){}'"]/g, " ")
    .replace(/\bno\b/g, "false").replace(/\byes\b/g, "true");
  return plain.split(/[,;\s]+/).filter(Boolean).map(word => {
    const [over, under = "1"] = word.replaceAll("_", "").split("/");
    const number = Number(over) / Number(under);
    return Number.isNaN(number) ? word : number;
  });
}

/** Return whether two parts mean the same; numbers may be off by a share of `truth`. */
function near(guess, truth, within) {
  if (typeof guess !== "number" || typeof truth !== "number") return guess === truth;
  return Math.abs(guess - truth) <= (within + 1e-6) * Math.abs(truth);
}

/** Return whether `guess` is what the page has `told`; one part may stand for equal ones. */
function fits(guess, told) {
  const [, answer, run, theory, anyOrder, percent] = told.match(ANSWER) || [];
  const within = Number(percent || 0) / 100;
  return [answer, run, theory].filter(text => text !== undefined).some(text => {
    const truth = parts(text);
    let given = parts(guess);
    if (given.length === 1 && !guess.includes("[")) given = truth.map(() => given[0]);
    if (anyOrder) {
      given = [...new Set(given)].sort();
      truth.sort();
    }
    return given.length === truth.length &&
      truth.every((part, n) => near(given[n], part, within));
  });
}

/* --- the page --- */

const key = question => `ddp-lab ${location.pathname.split("/").pop()} ${question}`;

/** Return a new element with some text. */
function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** Hide the lines of a page that answer; yield each question and its answer. */
function* answers() {
  for (const pre of document.querySelectorAll(".cell_output pre")) {
    const lines = pre.textContent.split("\n");
    if (!lines.some(line => TOLD.test(line))) continue;
    pre.textContent = "";
    lines.forEach((line, n) => {
      const told = n && line.match(TOLD);
      const span = make("span", told ? "ddp-answer" : "", told ? `  ${told[1]}` : line);
      pre.append(span, n + 1 < lines.length ? "\n" : "");
    });
    for (const span of pre.querySelectorAll(".ddp-answer")) {
      const question = span.previousElementSibling.textContent;
      yield {question, told: span.textContent.trim(), span};
    }
  }
}

/** Return the cell that asks `question`, if the page has one. */
function asks(question) {
  const letters = text => text.replace(/\W+/g, "");
  return [...document.querySelectorAll(".cell")].find(cell => {
    const code = cell.querySelector(".cell_input pre")?.textContent || "";
    if (!code.includes("predict(")) return false;
    const joined = code.replace(/"\s+f?"/g, "");  // one text, written in several lines
    if (letters(joined).includes(letters(question))) return true;
    return [...joined.matchAll(/"((?:[^"\\]|\\.)+)"/g)].some(([, text]) => {
      const fixed = text.split(/\{[^{}]*\}/);  // what stands around the {fields}
      const exact = fixed.map(piece => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
      return new RegExp(`^${exact.join(".+")}$`).test(question);
    });
  });
}

/** Put a field for a guess below the cell that asks. */
function field({question, told, span}, cell) {
  const form = make("form", "ddp-guess", "");
  const label = make("label", "", question);
  const input = make("input", "", "");
  const verdict = make("output", "", "");
  label.append(input);
  const check = make("button", "", "Check");
  const show = make("button", "", "Show the answer");
  show.type = "button";
  form.append(label, check, show, verdict);
  cell.querySelector(".cell_input").after(form);

  const open = words => {
    span.classList.remove("ddp-hidden");
    verdict.textContent = words;
  };
  const judge = guess => {
    const right = fits(guess, told);
    open(`${right ? "✓ right" : "✗ wrong"}: ${told}`);
    verdict.className = right ? "right" : "wrong";
  };
  span.classList.add("ddp-hidden");
  form.addEventListener("submit", event => {
    event.preventDefault();
    if (!input.value.trim()) return;
    localStorage.setItem(key(question), input.value);
    judge(input.value);
  });
  show.addEventListener("click", () => open(told));
  span.addEventListener("click", () => open(told));
  const kept = localStorage.getItem(key(question));
  if (kept) { input.value = kept; judge(kept); }
}

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll(".search-button__button")) {
    button.removeAttribute("aria-label");  // what it says is "Search Ctrl+K"
  }
  for (const answer of [...answers()].reverse()) {
    const cell = asks(answer.question);
    if (cell) field(answer, cell);
  }
});
