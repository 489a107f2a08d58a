// The one place where the page speaks of trouble. Several may hold at once; a blocking one is
// shown before a passing one, and the newest of a kind before the older.

import { byId } from "./dom.js";

const INFO_MS = 10_000;

export class NoticeBoard {
  #notices = new Map();
  #element = byId("notice");
  #shown = null;
  #fading = null;

  constructor() {
    byId("notice-close").addEventListener("click", () => {
      if (this.#shown) this.clear(this.#shown.slot);
    });
  }

  /** Shows `notice` in `slot`, replacing what was there. `actions`: [{label, run, primary}]. */
  show(slot, notice, actions = []) {
    this.#notices.delete(slot);
    this.#notices.set(slot, { slot, actions, ...notice });
    this.#render();
  }

  clear(...slots) {
    const changed = slots.filter((slot) => this.#notices.delete(slot));
    if (changed.length > 0) this.#render();
  }

  clearAll() {
    this.clear(...this.#notices.keys());
  }

  get code() {
    return this.#shown?.code ?? null;
  }

  #render() {
    const all = [...this.#notices.values()].reverse();
    const next = all.find((notice) => notice.blocking) ?? all[0] ?? null;
    const same = next && this.#shown && next.code === this.#shown.code
      && next.text === this.#shown.text && next.title === this.#shown.title;
    this.#shown = next;
    const element = this.#element;
    element.hidden = next === null;
    if (next === null) {
      delete element.dataset.code;
      return;
    }
    // Writing the same words again would make a screen reader say them again.
    if (same) return;
    clearTimeout(this.#fading);
    if (!next.blocking && next.tone === "info") {
      this.#fading = setTimeout(() => this.clear(next.slot), INFO_MS);
    }
    element.dataset.code = next.code;
    element.dataset.tone = next.tone;
    element.dataset.kind = next.blocking ? "blocking" : "passing";
    byId("notice-title").textContent = next.title;
    byId("notice-text").textContent = next.text;
    byId("notice-text").hidden = !next.text;
    byId("notice-close").hidden = next.blocking;
    byId("notice-actions").replaceChildren(...next.actions.map(button));
  }
}

function button({ label, run, primary }) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = primary ? "button primary" : "button";
  element.textContent = label;
  element.addEventListener("click", run);
  return element;
}
