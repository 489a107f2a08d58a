// The page: which view is shown, and what its buttons do.

import * as api from "./api.js";
import { Captions } from "./captions.js";
import { card } from "./cards.js";
import { missingFeature } from "./connection.js";
import { byId, setText } from "./dom.js";
import { Figures } from "./figures.js";
import { Lobby } from "./lobby.js";
import { Microphone } from "./microphone.js";
import { NoticeBoard } from "./notices.js";
import { Overlay } from "./overlay.js";
import { Stage } from "./stage.js";
import { Visit } from "./visit.js";
import * as words from "./words.js";

const VIEWS = ["lobby", "invite", "session"];
const LOSSY = 0.08;
const NO_PICTURE_S = 6;

class Page {
  #board = new NoticeBoard();
  #lobby = new Lobby(this.#board);
  #stage = new Stage();
  #captions = new Captions();
  #overlay = new Overlay();
  #visit = null;
  #microphone = null;
  #wantsMicrophone = false;
  #avatar = null;
  #canSpeak = false;
  #up = false;
  #invited = null;
  #figures = null;
  #latest = null;
  #wakeLock = null;

  constructor() {
    byId("talk").addEventListener("click", () => this.#talk(true));
    byId("talk-typing").addEventListener("click", () => this.#talk(false));
    byId("join").addEventListener("click", () => this.#joinInvited(true, true));
    byId("join-typing").addEventListener("click", () => this.#joinInvited(true, false));
    byId("watch").addEventListener("click", () => this.#joinInvited(false, false));
    byId("leave").addEventListener("click", () => this.#leave());
    byId("stop").addEventListener("click", () => this.#stop());
    byId("mic").addEventListener("click", () => this.#microphonePressed());
    byId("text").addEventListener("input", () => this.#controls());
    byId("dock").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#say(byId("text").value)) byId("text").value = "";
      this.#controls();
    });
    addEventListener("keydown", (event) => this.#key(event));
    addEventListener("popstate", () => this.#route());
    addEventListener("pagehide", () => this.#visit?.leave());
    addEventListener("pageshow", (event) => {
      if (event.persisted && document.body.dataset.view === "session") location.reload();
    });
    addEventListener("online", () => this.#visit?.networkChanged());
    navigator.connection?.addEventListener?.("change", () => this.#visit?.networkChanged());
    document.addEventListener("visibilitychange", () => this.#visibility());
    setInterval(() => this.#measure(), 1_000);
    this.#permissionWatch();
  }

  /** What tests and curious people may read: figures, never a way to act. */
  get report() {
    const page = this;
    return Object.freeze({
      get view() { return document.body.dataset.view; },
      get state() { return page.#stage.state; },
      get connected() { return page.#up; },
      get notice() { return page.#board.code; },
      get microphone() {
        const microphone = page.#microphone;
        if (!microphone?.track) return "none";
        return microphone.muted ? "muted" : "on";
      },
      get voiceToVoice() { return page.#overlay.voiceToVoice; },
      get media() { return page.#latest && { ...page.#latest }; },
      async getStats() {
        const report = await page.#visit?.connection?.getStats();
        return report ? [...report.values()] : [];
      },
    });
  }

  start() {
    const missing = missingFeature();
    if (missing) {
      this.#show("lobby");
      this.#lobby.start();
      this.#board.show("browser", { ...words.unsupported(missing), blocking: false });
      document.body.dataset.unsupported = missing;
      return;
    }
    this.#microphoneHints();
    this.#route();
  }

  // --- views ------------------------------------------------------------------------------

  #show(view) {
    document.body.dataset.view = view;
    for (const name of VIEWS) byId(name).hidden = name !== view;
  }

  #route() {
    this.#endVisit();
    const match = /^\/s\/([^/]+)\/?$/.exec(location.pathname);
    const token = /^#t=([\w.-]+)$/.exec(location.hash)?.[1];
    if (match && token) api.rememberToken(decodeURIComponent(match[1]), token);
    if (match) this.#showInvite(decodeURIComponent(match[1]));
    else this.#showLobby();
  }

  #showLobby() {
    document.title = "Talk to an avatar";
    this.#show("lobby");
    this.#lobby.start();
    this.#hintMicrophone();
  }

  async #showInvite(id) {
    this.#invited = { id, avatar: null };
    this.#show("loading");
    await this.#lobby.start();
    let session;
    try {
      session = await api.getSession(id);
    } catch (error) {
      if (this.#invited?.id !== id) return;
      if (error.status === 401 || error.status === 403) {
        this.#show("lobby");
        this.#board.show("invite", words.linkRefused(error));
        return;
      }
      if (error.status !== 404) {
        this.#board.show("invite", words.lobbyGone());
        setTimeout(() => this.#invited?.id === id && !this.#visit && this.#showInvite(id), 2_000);
        return;
      }
      history.replaceState(null, "", "/");
      this.#showLobby();
      this.#board.show("invite", { ...words.ended("Choose an avatar to start a new one"), blocking: false });
      return;
    }
    if (this.#invited?.id !== id || this.#visit) return;
    this.#board.clear("invite");
    const avatar = this.#lobby.find(session.avatar) ?? { name: session.avatar, title: session.avatar };
    this.#invited.avatar = avatar;
    const title = avatar.title || avatar.name;
    setText("invite-title", `A conversation with ${title}`);
    const viewers = Number(session.viewers) || 0;
    setText("invite-lead", viewers === 0 ? "Nobody is here just now."
      : viewers === 1 ? "One person is here." : `${viewers} people are here.`);
    byId("invite-recorded").hidden = !session.recorded;
    byId("invite-card").replaceChildren(card(avatar));
    document.title = `Join: ${title}`;
    this.#show("invite");
    this.#hintMicrophone();
  }

  // Where the microphone cannot be had at all, the buttons do not promise it.
  #hintMicrophone() {
    const can = window.isSecureContext && Boolean(navigator.mediaDevices?.getUserMedia);
    byId("talk-typing").hidden = !can;
    byId("join-typing").hidden = !can;
    for (const id of ["talk", "join"]) byId(id).querySelector("svg").toggleAttribute("hidden", !can);
    if (!can) {
      setText("start-hint", "You will type, and see and hear the answer. Avatars are computer-generated.");
    }
  }

  #microphoneHints() {
    if (!window.isSecureContext) this.#board.show("microphone", words.microphone("insecure"));
  }

  // --- joining and leaving ----------------------------------------------------------------

  #talk(withMicrophone) {
    const avatar = this.#lobby.selected;
    if (avatar) this.#join({ avatar, session: null, speak: true, withMicrophone });
  }

  #joinInvited(speak, withMicrophone) {
    const { avatar, id } = this.#invited;
    this.#join({ avatar, session: id, speak, withMicrophone });
  }

  async #join({ avatar, session, speak, withMicrophone }) {
    this.#invited = null;
    this.#lobby.stop();
    // It was read before the button was pressed; now it would stand before the face.
    this.#board.clear("microphone");
    this.#avatar = avatar;
    this.#canSpeak = speak;
    this.#wantsMicrophone = speak && withMicrophone && window.isSecureContext;
    this.#captions.clear();
    this.#captions.language = avatar.language;
    this.#overlay.reset();
    this.#stage.prepare(avatar, { speak });
    this.#stage.setMicrophone({ present: false, muted: false });
    this.#stage.setState("connecting");
    this.#drawSuggestions(speak ? avatar.suggestions ?? [] : []);
    document.title = avatar.title || avatar.name;
    this.#show("session");
    this.#controls();
    byId("session").focus({ preventScroll: true });

    const visit = new Visit({ avatar: avatar.name, session, speak });
    this.#visit = visit;
    this.#listen(visit);
    if (this.#wantsMicrophone) await this.#openMicrophone(visit);
    if (this.#visit !== visit) return;
    visit.microphone = this.#microphone;
    this.#lockScreen();
    visit.run();
  }

  #listen(visit) {
    const here = (handler) => ({ detail }) => {
      if (this.#visit === visit) handler(detail);
    };
    visit.addEventListener("session", here(({ id, link }) => {
      const path = link ?? `/s/${encodeURIComponent(id)}`;
      if (location.pathname.startsWith("/s/")) history.replaceState(null, "", path);
      else history.pushState(null, "", path);
    }));
    visit.addEventListener("link", here((link) => this.#linkChanged(link)));
    visit.addEventListener("trouble", here((notice) => this.#trouble(notice)));
    visit.addEventListener("media", here((media) => this.#stage.attach(media)));
    visit.addEventListener("message", here((event) => this.#message(event)));
    visit.addEventListener("over", here((notice) => this.#over(notice)));
  }

  #linkChanged(link) {
    this.#up = link === "up";
    this.#figures = this.#up ? new Figures() : null;
    this.#latest = null;
    this.#stage.setLink(link);
    if (this.#up) this.#stage.setState("idle");
    else if (!["waiting", "reconnecting"].includes(this.#stage.state)) {
      this.#stage.setState(link === "connecting" ? "connecting" : "reconnecting");
    }
    if (!this.#up) this.#board.clear("quality", "server");
    this.#controls();
  }

  #trouble(notice) {
    if (!notice) {
      this.#board.clear("visit");
      return;
    }
    const waiting = ["full", "starting", "busy"].includes(notice.code);
    this.#stage.setState(waiting ? "waiting" : "reconnecting");
    const actions = [];
    if (!waiting) {
      actions.push({ label: "Try now", run: () => this.#visit?.retryNow(), primary: true });
    }
    actions.push({ label: waiting ? "Cancel" : "Leave", run: () => this.#leave() });
    this.#board.show("visit", notice, actions);
  }

  #over(notice) {
    this.#linkChanged("down");
    this.#stage.setState("ended");
    const avatar = this.#avatar;
    const again = this.#lobby.find(avatar?.name) && {
      label: `Talk to ${avatar.title || avatar.name} again`,
      primary: true,
      run: () => {
        this.#endVisit();
        this.#join({ avatar, session: null, speak: true, withMicrophone: this.#wantsMicrophone });
      },
    };
    const actions = [{ label: "See all avatars", run: () => this.#leave() }];
    this.#board.show("visit", notice, again ? [again, ...actions] : actions);
  }

  #leave() {
    this.#endVisit();
    history.pushState(null, "", "/");
    this.#showLobby();
    byId("talk").focus({ preventScroll: true });
  }

  #endVisit() {
    this.#visit?.leave();
    this.#visit = null;
    this.#microphone?.close();
    this.#microphone = null;
    this.#up = false;
    this.#stage.detach();
    this.#board.clearAll();
    this.#wakeLock?.release().catch(() => {});
    this.#wakeLock = null;
    if (!window.isSecureContext) this.#microphoneHints();
  }

  // --- the avatar's events ----------------------------------------------------------------

  #message(event) {
    switch (event.type) {
      case "hello":
        this.#canSpeak = event.can_speak;
        setText("who", event.title || event.avatar);
        this.#stage.setRecorded(Boolean(event.recorded));
        if (event.can_speak || byId("session").dataset.role === "watcher") {
          this.#board.clear("floor");
        } else {
          this.#board.show("floor", words.watching());
        }
        this.#controls();
        break;
      case "state":
        this.#stage.setState(event.state);
        if (event.state === "idle") this.#captions.rest();
        this.#controls();
        break;
      case "heard":
        this.#captions.heard(event.text, event);
        break;
      case "caption":
        this.#captions.caption(event);
        break;
      case "interrupted":
        this.#captions.interrupted();
        break;
      case "turndone":
        this.#overlay.turn(event);
        break;
      case "stats":
        this.#overlay.server(event);
        break;
      case "notice":
        if (event.code === "recording_stopped") this.#stage.setRecorded(false);
        this.#board.show("server", words.fromServer(event));
        break;
      default:
        // A newer server may say more than this page knows.
        break;
    }
  }

  #say(text) {
    const trimmed = text.trim();
    if (!trimmed || !this.#visit?.send({ type: "text", text: trimmed })) return false;
    this.#captions.heard(trimmed, { final: true });
    return true;
  }

  #stop() {
    this.#visit?.send({ type: "stop" });
  }

  // --- microphone -------------------------------------------------------------------------

  /** Asks for the microphone; the person may go on without while the browser asks. */
  async #openMicrophone(visit) {
    const microphone = new Microphone();
    const skip = new Promise((resolve) => {
      this.#board.show("asking", words.askingMicrophone(), [
        { label: "Continue without microphone", run: () => resolve(false) },
        { label: "Cancel", run: () => this.#leave() },
      ]);
    });
    const opened = microphone.open().then(
      () => {
        if (this.#visit !== visit) microphone.close();
        return this.#visit === visit;
      },
      (error) => {
        if (this.#visit === visit) {
          this.#board.show("microphone", words.microphone(error.code, error.message));
        }
        return false;
      },
    );
    // Allowed after all, though the person went on without it.
    opened.then((open) => open && this.#useMicrophone(microphone));
    await Promise.race([opened, skip]);
    this.#board.clear("asking");
    if (this.#visit === visit && !this.#microphone) this.#watchMicrophone(microphone);
  }

  #useMicrophone(microphone) {
    this.#microphone = microphone;
    this.#watchMicrophone(microphone);
    this.#board.clear("microphone");
    this.#stage.setMicrophone({ present: true, muted: microphone.muted });
    this.#stage.setListens(!microphone.muted);
    const { connection } = this.#visit;
    if (!connection) this.#visit.microphone = microphone;
    else if (connection.sendsAudio) connection.replaceTrack(microphone.track);
    else {
      this.#visit.microphone = microphone;
      this.#visit.reconnect();
    }
  }

  #watched = new WeakSet();

  #watchMicrophone(microphone) {
    if (this.#watched.has(microphone)) return;
    this.#watched.add(microphone);
    microphone.addEventListener("level", ({ detail }) => this.#stage.setLevel(detail));
    microphone.addEventListener("available", () => {
      if (this.#visit && !this.#microphone?.track) {
        this.#board.show("microphone", words.microphoneAvailable());
      }
    });
    microphone.addEventListener("change", ({ detail }) => {
      if (this.#microphone !== microphone) return;
      this.#board.show("microphone", words.microphoneChanged(detail));
      this.#stage.setMicrophone({ present: Boolean(detail.now), muted: microphone.muted });
      this.#stage.setListens(Boolean(detail.now) && !microphone.muted);
      if (detail.now) this.#visit?.connection?.replaceTrack(microphone.track);
    });
  }

  async #microphonePressed() {
    const microphone = this.#microphone;
    if (microphone?.track) {
      microphone.setMuted(!microphone.muted);
      this.#stage.setMicrophone({ present: true, muted: microphone.muted });
      this.#stage.setListens(!microphone.muted);
      return;
    }
    if (!this.#visit || !this.#canSpeak) return;
    this.#wantsMicrophone = true;
    const button = byId("mic");
    button.disabled = true;
    await this.#openMicrophone(this.#visit);
    button.disabled = false;
    this.#controls();
  }

  async #permissionWatch() {
    try {
      const permission = await navigator.permissions.query({ name: "microphone" });
      permission.addEventListener("change", () => {
        const waiting = this.#visit && this.#wantsMicrophone && !this.#microphone?.track;
        if (permission.state === "granted" && waiting && this.#board.code !== "mic-asking") {
          this.#microphonePressed();
        }
      });
    } catch {
      // Not every browser tells; the microphone button does it then.
    }
  }

  // --- controls ---------------------------------------------------------------------------

  #controls() {
    const can = this.#up && this.#canSpeak;
    byId("text").disabled = !can;
    byId("send").disabled = !can || !byId("text").value.trim();
    byId("mic").disabled = !this.#canSpeak;
    if (!this.#canSpeak || !this.#up) byId("stop").disabled = true;
    for (const chip of byId("suggestions").children) chip.disabled = !can;
  }

  #drawSuggestions(suggestions) {
    byId("suggestions").replaceChildren(...suggestions.map((text) => {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.className = "chip";
      chip.textContent = text;
      chip.addEventListener("click", () => this.#say(text));
      return chip;
    }));
  }

  #key(event) {
    if (document.body.dataset.view !== "session" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (!byId("stop").disabled) this.#stop();
      return;
    }
    if (event.target.closest?.("input, textarea, [contenteditable]")) return;
    if (event.key === "o") this.#overlay.toggle();
    if (event.key === "m" && this.#microphone?.track) this.#microphonePressed();
  }

  // --- once a second, and when the tab is seen again ---------------------------------------

  #badSeconds = 0;
  #still = { frames: 0, seconds: 0 };

  async #measure() {
    const figures = this.#figures;
    const connection = this.#visit?.connection;
    if (!figures || !connection) return;
    const report = await connection.getStats().catch(() => null);
    const now = report && figures.take(report, performance.now());
    if (!now || this.#figures !== figures) return;
    this.#latest = { ...now, channelRttMs: connection.roundTripMs };
    this.#overlay.browser(now, connection.roundTripMs);
    this.#judge(now);
  }

  #judge({ loss, frames }) {
    this.#badSeconds = loss > LOSSY ? Math.min(this.#badSeconds + 1, 6) : Math.max(0, this.#badSeconds - 1);
    const moves = frames !== this.#still.frames || document.hidden;
    this.#still = { frames, seconds: moves ? 0 : this.#still.seconds + 1 };
    if (this.#still.seconds >= NO_PICTURE_S) this.#board.show("quality", words.noPicture());
    else if (this.#badSeconds >= 4) this.#board.show("quality", words.lossy(Math.round(100 * loss)));
    else if (this.#badSeconds === 0) this.#board.clear("quality");
  }

  #visibility() {
    if (document.hidden || !this.#visit) return;
    this.#stage.resume();
    this.#visit.retryNow();
    this.#lockScreen();
  }

  async #lockScreen() {
    try {
      this.#wakeLock = await navigator.wakeLock?.request("screen");
    } catch {
      // A screen that may go dark is no reason to bother anybody.
    }
  }
}

const page = new Page();
Object.defineProperty(window, "avatarPage", { value: page.report });
page.start();
