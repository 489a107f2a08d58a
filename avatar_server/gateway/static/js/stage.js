// The session view: picture and sound, what the avatar is doing, and the controls.

import { byId, setText } from "./dom.js";

const LABELS = {
  connecting: "Connecting",
  reconnecting: "Reconnecting",
  waiting: "Waiting",
  ended: "Ended",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  unavailable: "One moment",
};

export class Stage {
  #root = byId("session");
  #video = byId("video");
  #poster = byId("poster");
  #state = byId("state");
  #sound = byId("sound");
  #listens = false;

  constructor() {
    this.#sound.addEventListener("click", () => this.#play());
    this.#video.addEventListener("playing", () => this.#whenFrame());
  }

  get state() {
    return this.#state.dataset.state;
  }

  /** Readies the stage for an avatar, before there is a connection. */
  prepare(avatar, { speak }) {
    setText("who", avatar?.title || avatar?.name || "Avatar");
    this.#video.setAttribute("aria-label", `${avatar?.title || "The avatar"}, live`);
    this.#poster.hidden = !avatar?.picture;
    if (avatar?.picture) this.#poster.src = avatar.picture;
    this.#root.dataset.picture = "false";
    this.#root.dataset.role = speak ? "speaker" : "watcher";
    this.#sound.hidden = true;
    this.#listens = !speak;
    this.setRecorded(false);
    this.setLink("connecting");
  }

  setLink(link) {
    this.#root.dataset.link = link;
    // A track that ended shows black: better the blurred still.
    if (link === "down") this.detach();
  }

  setState(state) {
    this.#state.dataset.state = state;
    setText("state-label", LABELS[state] ?? (this.#listens ? "Listening" : "Ready"));
    byId("stop").disabled = !(state === "thinking" || state === "speaking");
  }

  /** Shows, for as long as it is so, that what is said here is kept. */
  setRecorded(recorded) {
    byId("recorded").hidden = !recorded;
  }

  setListens(listens) {
    this.#listens = listens;
    this.setState(this.state);
  }

  attach(media) {
    if (this.#video.srcObject !== media) this.#video.srcObject = media;
    this.#play();
  }

  detach() {
    this.#video.srcObject = null;
    this.#root.dataset.picture = "false";
    this.#sound.hidden = true;
  }

  resume() {
    if (this.#video.srcObject && this.#video.paused) this.#play();
  }

  setMicrophone({ present, muted }) {
    const button = byId("mic");
    button.dataset.mic = present ? (muted ? "muted" : "on") : "none";
    button.setAttribute("aria-pressed", String(present && muted));
    const label = present ? (muted ? "Unmute microphone" : "Mute microphone") : "Use microphone";
    button.setAttribute("aria-label", label);
    button.title = present ? `${label} (m)` : label;
    byId("mic-icon").setAttribute("href", present && !muted ? "#i-mic" : "#i-mic-off");
    if (!present || muted) this.setLevel(0);
    byId("text").placeholder = present ? "Speak or type" : "Type a message";
  }

  setLevel(level) {
    byId("mic-level").style.setProperty("--level", level.toFixed(3));
  }

  // Sound alone makes a video element "play", with a black picture.
  #whenFrame() {
    const video = this.#video;
    const media = video.srcObject;
    const show = () => {
      if (media && video.srcObject === media) this.#root.dataset.picture = "true";
    };
    if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(show);
    else if (video.videoWidth > 0) show();
    else video.addEventListener("resize", show, { once: true });
  }

  // Browsers may refuse sound until the page is touched: then the picture plays at least.
  async #play() {
    const video = this.#video;
    video.muted = false;
    try {
      await video.play();
      this.#sound.hidden = true;
    } catch (error) {
      if (error.name !== "NotAllowedError") return;
      video.muted = true;
      this.#sound.hidden = false;
      await video.play().catch(() => {});
    }
  }
}
