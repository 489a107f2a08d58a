// The microphone: asking for it, its level, muting, and what happens when it is unplugged.

const CONSTRAINTS = {
  audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
  video: false,
};
const LEVEL_INTERVAL_MS = 60;
// A level of -60 dBFS shows as nothing, 0 dBFS as a full meter.
const LEVEL_FLOOR_DB = -60;

/** Why there is no microphone: `code` is insecure, unsupported, refused, none, busy or failed. */
export class MicrophoneError extends Error {
  constructor(code, message = code) {
    super(message);
    this.name = "MicrophoneError";
    this.code = code;
  }
}

export class Microphone extends EventTarget {
  #stream = null;
  #context = null;
  #meter = null;
  #muted = false;
  #onDeviceChange = () => this.#devicesChanged();

  /** Events: `change` (another device or none), `level` (detail 0..1), `available`. */
  constructor() {
    super();
    navigator.mediaDevices?.addEventListener?.("devicechange", this.#onDeviceChange);
  }

  get track() {
    return this.#stream?.getAudioTracks()[0] ?? null;
  }

  get label() {
    return this.track?.label || "the microphone";
  }

  get muted() {
    return this.#muted;
  }

  /** Asks the person and the browser. Throws `MicrophoneError`. */
  async open() {
    this.#release();
    if (!window.isSecureContext) throw new MicrophoneError("insecure");
    if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneError("unsupported");
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia(CONSTRAINTS);
    } catch (error) {
      throw new MicrophoneError(codeOf(error), error.message);
    }
    const track = this.track;
    track.enabled = !this.#muted;
    track.addEventListener("ended", () => this.#lost(track));
    this.#startMeter();
  }

  setMuted(muted) {
    this.#muted = muted;
    if (this.track) this.track.enabled = !muted;
  }

  close() {
    navigator.mediaDevices?.removeEventListener?.("devicechange", this.#onDeviceChange);
    this.#release();
  }

  #release() {
    clearInterval(this.#meter);
    this.#context?.close().catch(() => {});
    this.#context = null;
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
  }

  async #lost(track) {
    if (track !== this.track) return;
    const was = track.label || "the microphone";
    try {
      await this.open();
      this.dispatchEvent(new CustomEvent("change", { detail: { was, now: this.label } }));
    } catch {
      this.#release();
      this.dispatchEvent(new CustomEvent("change", { detail: { was, now: null } }));
    }
  }

  async #devicesChanged() {
    const track = this.track;
    if (track?.readyState === "ended") {
      await this.#lost(track);
      return;
    }
    const devices = await navigator.mediaDevices.enumerateDevices().catch(() => []);
    if (!this.track && devices.some((device) => device.kind === "audioinput")) {
      this.dispatchEvent(new Event("available"));
    }
  }

  #startMeter() {
    const Context = window.AudioContext;
    if (!Context) return;
    const context = new Context();
    const analyser = new AnalyserNode(context, { fftSize: 1024 });
    context.createMediaStreamSource(this.#stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    this.#context = context;
    this.#meter = setInterval(() => {
      if (document.hidden) return;
      analyser.getFloatTimeDomainData(samples);
      let energy = 0;
      for (const sample of samples) energy += sample * sample;
      const db = 10 * Math.log10(energy / samples.length + 1e-12);
      const level = this.#muted ? 0 : Math.min(1, Math.max(0, 1 - db / LEVEL_FLOOR_DB));
      this.dispatchEvent(new CustomEvent("level", { detail: level }));
    }, LEVEL_INTERVAL_MS);
  }
}

function codeOf(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "refused";
    case "NotFoundError":
    case "OverconstrainedError":
      return "none";
    case "NotReadableError":
    case "AbortError":
      return "busy";
    default:
      return "failed";
  }
}
