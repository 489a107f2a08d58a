// What is being said: the avatar's words as they are spoken, and what the viewer said before.

import { byId } from "./dom.js";

// After a reply its words stay this long; then the suggestions have their place again.
const REST_MS = 7_000;

export class Captions {
  #root = byId("captions");
  #heard = byId("heard");
  #lines = byId("lines");
  #log = byId("log");
  #turn = null;
  #clauses = new Map();
  #logged = new Set();
  #resting = null;

  clear() {
    this.#newTurn(null);
    this.#heard.textContent = "";
    this.#log.replaceChildren();
    this.#mark();
  }

  set language(language) {
    this.#lines.lang = language || "";
  }

  /** What the viewer said or typed. */
  heard(text, { final, turn = null }) {
    if (turn !== this.#turn) this.#newTurn(turn);
    this.#heard.textContent = text ? `You: ${text}` : "";
    this.#heard.classList.toggle("tentative", !final);
    if (final && text) this.#say(`heard ${turn} ${text}`, `You: ${text}`);
    this.#mark();
  }

  caption({ turn, clause, text, spoken }) {
    if (turn !== this.#turn) {
      // The question of a typed turn is shown before its number is known.
      const question = this.#turn === null ? this.#heard.textContent : "";
      this.#newTurn(turn);
      this.#heard.textContent = question;
    }
    const line = this.#line(clause);
    const said = commonPrefix(text, spoken);
    line.said.textContent = said;
    line.unsaid.textContent = text.slice(said.length);
    this.#say(`clause ${turn} ${clause}`, text);
    this.#lines.scrollTop = this.#lines.scrollHeight;
    this.#mark();
  }

  /** The reply broke off: what was not said is taken away. */
  interrupted() {
    for (const line of this.#clauses.values()) {
      if (!line.said.textContent) line.element.remove();
      else if (line.unsaid.textContent) line.said.textContent = `${line.said.textContent.trimEnd()} –`;
      line.unsaid.textContent = "";
    }
    this.#mark();
  }

  /** Nothing is being said: the words step back after a while. */
  rest() {
    clearTimeout(this.#resting);
    this.#resting = setTimeout(() => { this.#root.dataset.resting = "true"; }, REST_MS);
  }

  #newTurn(turn) {
    this.#turn = turn;
    this.#clauses.clear();
    this.#logged.clear();
    this.#lines.replaceChildren();
    this.#heard.textContent = "";
  }

  #line(clause) {
    const known = this.#clauses.get(clause);
    if (known) return known;
    const element = document.createElement("span");
    element.className = "clause";
    const said = document.createElement("b");
    const unsaid = document.createElement("span");
    element.append(said, unsaid);
    this.#lines.append(element, " ");
    const line = { element, said, unsaid };
    this.#clauses.set(clause, line);
    return line;
  }

  // A screen reader gets each clause once and whole, not word by word.
  #say(key, text) {
    if (this.#logged.has(key)) return;
    this.#logged.add(key);
    const item = document.createElement("p");
    item.textContent = text;
    this.#log.append(item);
    while (this.#log.childElementCount > 50) this.#log.firstElementChild.remove();
  }

  #mark() {
    clearTimeout(this.#resting);
    this.#root.dataset.resting = "false";
    const empty = !this.#heard.textContent && !this.#lines.textContent.trim();
    this.#root.dataset.empty = String(empty);
  }
}

/** How much of `text` is said; where `spoken` is written otherwise, as many characters. */
function commonPrefix(text, spoken) {
  if (text.startsWith(spoken)) return spoken;
  return text.slice(0, spoken.length);
}
