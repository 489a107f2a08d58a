// A stay with one avatar: gets a place, connects, and comes back by itself when anything breaks,
// until the person leaves or there is nothing to come back to.

import * as api from "./api.js";
import { ApiError, Unreachable } from "./api.js";
import { Connection } from "./connection.js";
import * as words from "./words.js";

const BACKOFF_MS = [0, 500, 1_000, 2_000, 4_000, 5_000];
// A connection that breaks sooner than this counts as one more failed attempt.
const STOOD_MS = 5_000;
const LOOK_AGAIN_MS = 2_000;
const MAX_RETRY_AFTER_MS = 15_000;
// Notices after which the session is over on purpose, so that coming back would be unwelcome.
const FINAL_CODES = new Set(["stopped", "ended"]);

/**
 * Events: `session` (detail: the new session), `link` (detail: "connecting", "up" or "down"), `trouble`
 * (detail: a notice or null), `media`, `message`, `over` (detail: the last notice).
 */
export class Visit extends EventTarget {
  #avatar;
  #session;
  #speak;
  #mayStart;
  #microphone;
  #connection = null;
  #leaving = new AbortController();
  #wake = null;
  #breakOff = null;
  #final = null;
  #location = null;
  #why = null;

  /** `avatar` is a name; `session` an id to join, or null to start one. */
  constructor({ avatar, session = null, speak = true, microphone = null }) {
    super();
    this.#avatar = avatar;
    this.#session = session;
    this.#speak = speak;
    this.#mayStart = speak && Boolean(avatar);
    this.#microphone = microphone;
  }

  get connection() {
    return this.#connection;
  }

  set microphone(microphone) {
    this.#microphone = microphone;
  }

  /** Runs until left or over. */
  async run() {
    let attempt = 0;
    while (!this.#left) {
      try {
        this.#emit("link", "connecting");
        await this.#place();
        const signal = this.#leaving.signal;
        const iceServers = await api.getIceServers(this.#session, { signal });
        const since = performance.now();
        const reason = await this.#stay(iceServers);
        if (performance.now() - since > STOOD_MS && reason !== "ice-failed") attempt = 0;
        if (this.#left) return;
        this.#emit("link", "down");
        if (this.#final) return void this.#over(words.ended(this.#final));
        if (reason !== "again") this.#trouble(words.lost(reason, this.#why));
      } catch (error) {
        if (this.#left) return;
        this.#emit("link", "down");
        const next = await this.#recover(error);
        if (next === "stop") return;
        if (next === "now") continue;
      }
      await this.#pause(jitter(BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)]));
      attempt += 1;
    }
  }

  send(event) {
    return this.#connection?.send(event) ?? false;
  }

  /** Tries at once instead of at the end of the pause. */
  retryNow() {
    this.#wake?.();
  }

  /** The device is on another network perhaps: finds out at once whether the connection stands. */
  networkChanged() {
    this.#connection?.probe();
    this.retryNow();
  }

  /** Connects anew to the same session, e.g. because there is a microphone now. */
  reconnect() {
    this.#breakOff?.("again");
    this.retryNow();
  }

  leave() {
    this.#leaving.abort();
    if (this.#connection) this.#connection.close();
    else if (this.#location) api.removeViewer(this.#location);
    this.#connection = null;
    this.#location = null;
    this.#breakOff?.("left");
    this.retryNow();
  }

  get #left() {
    return this.#leaving.signal.aborted;
  }

  /** Waits until there is a session for us. */
  async #place() {
    const signal = this.#leaving.signal;
    while (!this.#session) {
      const status = await api.getStatus({ signal });
      if (!status.ready) {
        this.#trouble(words.starting(status.phase || status.reason));
      } else if (status.sessions?.free === 0) {
        this.#trouble(words.full(status.sessions.max, status.full_because));
      } else {
        const created = await api.createSession(this.#avatar, { signal });
        this.#session = created.id;
        this.#location = null;
        this.#emit("session", created);
        return;
      }
      await this.#pause(jitter(LOOK_AGAIN_MS));
      signal.throwIfAborted();
    }
  }

  /** One connection, from offer to break-off; gives the reason it ended. */
  async #stay(iceServers) {
    const connection = new Connection({
      session: this.#session,
      speak: this.#speak,
      track: this.#microphone?.track ?? null,
      iceServers,
      again: this.#location,
    });
    this.#connection = connection;
    const over = new Promise((resolve) => {
      this.#breakOff = resolve;
      connection.addEventListener("down", ({ detail }) => resolve(detail));
    });
    connection.addEventListener("up", () => {
      this.#trouble(null);
      this.#emit("link", "up");
    });
    connection.addEventListener("media", ({ detail }) => this.#emit("media", detail));
    connection.addEventListener("message", ({ detail }) => {
      if (detail.type === "notice" && FINAL_CODES.has(detail.code)) this.#final = detail.message;
      this.#emit("message", detail);
    });
    try {
      const started = connection.start();
      started.catch(() => {});
      // A leave or a break-off must not wait for the answer.
      await Promise.race([started, over]);
      return await over;
    } finally {
      this.#why = connection.why;
      this.#location = this.#left ? null : connection.location;
      if (this.#left) connection.close();
      else connection.abandon();
      this.#breakOff = null;
      if (this.#connection === connection) this.#connection = null;
    }
  }

  /**
   * Says what went wrong. Gives "now" where it waited as the server asked, "later" to try again
   * after a pause, "stop" where there is nothing to come back to.
   */
  async #recover(error) {
    if (error instanceof Unreachable) {
      this.#trouble(words.gone(navigator.onLine === false));
      return "later";
    }
    if (!(error instanceof ApiError)) {
      console.error(error);
      this.#trouble(words.lost("error"));
      return "later";
    }
    if (error.status === 404 && this.#session) {
      if (!this.#mayStart) return this.#over(words.ended(null));
      this.#session = null;
      return "later";
    }
    if (error.status === 503 || error.status === 429) {
      this.#trouble(words.busy(error));
      const askedMs = (error.retryAfterS ?? 0) * 1_000;
      await this.#pause(Math.min(Math.max(askedMs, 500), MAX_RETRY_AFTER_MS));
      return "now";
    }
    if (error.status >= 500) {
      this.#trouble(words.serverError(error));
      return "later";
    }
    return this.#over(words.refused(error));
  }

  #over(notice) {
    this.#leaving.abort();
    this.#emit("over", notice);
    return "stop";
  }

  #pause(ms) {
    if (ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #trouble(notice) {
    this.#emit("trouble", notice);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

// Many viewers of a server that comes back must not all ask in the same instant.
const jitter = (ms) => ms * (0.8 + 0.4 * Math.random());
