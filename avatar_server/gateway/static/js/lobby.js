// Choosing an avatar: the cards, and how the server is.

import * as api from "./api.js";
import { card } from "./cards.js";
import { byId, setText } from "./dom.js";
import * as words from "./words.js";

const RETRY_MS = 2_000;
const POLL_MS = 10_000;

export class Lobby {
  #board;
  #avatars = null;
  #status = null;
  #selected = null;
  #timer = null;

  constructor(board) {
    this.#board = board;
    byId("avatars").addEventListener("change", ({ target }) => this.#select(target.value));
  }

  get avatars() {
    return this.#avatars ?? [];
  }

  get selected() {
    return this.find(this.#selected);
  }

  get status() {
    return this.#status;
  }

  find(name) {
    return this.avatars.find((avatar) => avatar.name === name) ?? null;
  }

  /** Keeps the lobby true until `stop`; resolves when the avatars are there. */
  start() {
    this.stop();
    return new Promise((resolve) => {
      const look = async () => {
        const fine = await this.#look();
        if (this.#avatars) resolve();
        const soon = !fine || !this.#status?.ready;
        if (this.#timer !== null) this.#timer = setTimeout(look, soon ? RETRY_MS : POLL_MS);
      };
      this.#timer = setTimeout(look, 0);
    });
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#board.clear("lobby");
  }

  async #look() {
    try {
      this.#status = await api.getStatus();
      if (!this.#avatars?.length) {
        this.#avatars = await api.getAvatars();
        this.#draw();
      }
    } catch {
      if (this.#timer !== null) this.#board.show("lobby", words.lobbyGone());
      return false;
    }
    if (this.#timer === null) return true;
    const { ready, phase, reason, sessions, version } = this.#status;
    if (this.#avatars.length === 0) this.#board.show("lobby", words.noAvatars());
    else if (!ready) this.#board.show("lobby", words.lobbyStarting(phase || reason));
    // Not to those who have opened a link.
    else if (this.#status.start === "operators" && document.body.dataset.view === "lobby") this.#board.show("lobby", words.invitationOnly());
    else this.#board.clear("lobby");
    this.#buttons();
    byId("start-recorded").hidden = !this.#status.recorded;
    setText("places", ready ? places(sessions) : "");
    setText("version", version ? `avatar-server ${version}` : "");
    return true;
  }

  #draw() {
    const group = byId("avatars");
    group.setAttribute("aria-busy", "false");
    group.classList.toggle("single", this.#avatars.length === 1);
    group.replaceChildren(...this.#avatars.map((avatar) => card(avatar, { choice: true })));
    if (this.#avatars.length === 0) return;
    const name = this.find(this.#selected)?.name ?? this.#avatars[0].name;
    for (const input of group.querySelectorAll("input")) input.checked = input.value === name;
    this.#select(name);
  }

  #buttons() {
    const can = Boolean(this.selected) && this.#status?.start !== "operators";
    byId("talk").disabled = !can;
    byId("talk-typing").disabled = !can;
  }

  #select(name) {
    this.#selected = name;
    const avatar = this.selected;
    setText("talk-label", `Talk to ${avatar.title || avatar.name}`);
    this.#buttons();
  }
}

function places(sessions) {
  if (!sessions) return "";
  if (sessions.free === 0) return "All places are taken just now; you will wait in line.";
  return `${sessions.free} of ${sessions.max} ${sessions.max === 1 ? "place" : "places"} free`;
}
