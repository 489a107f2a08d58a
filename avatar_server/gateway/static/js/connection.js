// One WebRTC connection of this viewer to an avatar, from the offer until it is down.

import * as api from "./api.js";
import { addresses, diagnose } from "./diagnosis.js";

const CHANNEL = "events";
const PING_INTERVAL_MS = 500;
// Below the server's own patience (5 s), so that it still knows us when we come back.
const SILENT_MS = 2_500;
// After the device changed its network: what still stands answers much sooner.
const PROBE_MS = 1_200;
// A channel that does not answer while media comes: packets are lost, but the path stands.
const MUTE_MS = 10_000;
// A connection that is replaced goes on until the new one has taken its place.
const LINGER_MS = 3_000;
// Host candidates arrive at once: waiting this long for them mostly saves the PATCH requests.
const GATHER_MS = 150;
const CONNECT_TIMEOUT_MS = 15_000;
const DISCONNECTED_MS = 3_000;

/** Whether this browser can show an avatar: null, or "webrtc" or "h264" for what it lacks. */
export function missingFeature() {
  if (typeof window.RTCPeerConnection !== "function") return "webrtc";
  const codecs = videoCodecs();
  if (codecs && !codecs.some(isH264)) return "h264";
  return null;
}

const videoCodecs = () => window.RTCRtpReceiver?.getCapabilities?.("video")?.codecs;
const isH264 = (codec) => codec.mimeType.toLowerCase() === "video/h264";

/**
 * Events: `message` (detail: an event of the avatar), `media` (detail: MediaStream), `up`,
 * `down` (detail: "ice-failed", "ice-lost", "silent" or "closed"; once, unless closed here).
 */
export class Connection extends EventTarget {
  #pc;
  #channel;
  #audio;
  #location = null;
  #candidates = [];
  #speak;
  #session;
  #abort = new AbortController();
  #timers = new Set();
  #media = new MediaStream();
  #everUp = false;
  #over = false;
  #unanswered = 0;
  #silentSince = null;
  #received = 0;
  #disconnectedTimer = null;
  #again;
  #answer = "";
  #turnErrors = [];

  roundTripMs = null;
  /** After "ice-failed": what is known of the cause, see diagnosis.js. */
  why = null;

  /** `again`: the address of this viewer, where it was connected before. */
  constructor({ session, speak, track, iceServers, again = null }) {
    super();
    this.#session = session;
    this.#speak = speak;
    this.#again = again;
    this.#pc = new RTCPeerConnection({ iceServers: iceServers ?? [], bundlePolicy: "max-bundle" });
    this.#channel = this.#pc.createDataChannel(CHANNEL);
    this.#audio = track
      ? this.#pc.addTransceiver(track, { direction: "sendrecv" })
      : this.#pc.addTransceiver("audio", { direction: "recvonly" });
    preferH264(this.#pc.addTransceiver("video", { direction: "recvonly" }));
    this.#listen();
  }

  /** Hands in the offer and takes the answer; throws the errors of the API. */
  async start() {
    const pc = this.#pc;
    await pc.setLocalDescription(await pc.createOffer());
    await this.#gathered();
    const sent = pc.localDescription.sdp;
    const signal = this.#abort.signal;
    // What is already in the offer need not be sent again.
    this.#candidates = this.#candidates.filter((c) => !c.candidate || !sent.includes(c.candidate));
    const answer = await this.#offer(sent, { signal });
    this.#location = answer.location;
    if (this.#over) {
      this.#goodbye();
      return;
    }
    this.#answer = answer.sdp;
    if (addresses(answer.sdp).length === 0) {
      // No more will come: the server's answers are complete.
      await this.#failed();
      return;
    }
    await pc.setRemoteDescription({ type: "answer", sdp: answer.sdp });
    for (const candidate of this.#candidates.splice(0)) this.#trickle(candidate);
    this.#after(CONNECT_TIMEOUT_MS, () => {
      if (!this.#everUp) this.#failed();
    });
  }

  async #offer(sdp, options) {
    if (this.#again) {
      try {
        return await api.offerAgain(this.#again, this.#speak, sdp, options);
      } catch (error) {
        if (error.status !== 404) throw error;
      }
    }
    return api.offer(this.#session, this.#speak, sdp, options);
  }

  /** The address of this viewer, under which another connection can take this one's place. */
  get location() {
    return this.#location ?? this.#again;
  }

  /** Ends without a goodbye: the viewer stays, and connects anew. */
  abandon() {
    if (this.#over) return;
    this.#end(LINGER_MS);
  }

  /** The device's network changed: if nothing comes soon, the connection is down. */
  async probe() {
    if (!this.#everUp || this.#over) return;
    this.#unanswered = 0;
    await this.#mediaCame();
    if (this.#over) return;
    this.#ping();
    this.#after(PROBE_MS, async () => {
      if (this.#unanswered > 0 && !(await this.#mediaCame())) this.#down("silent");
    });
  }

  /** Sends an event of the page; false where the channel is not open. */
  send(event) {
    if (this.#channel.readyState !== "open") return false;
    this.#channel.send(JSON.stringify(event));
    return true;
  }

  async replaceTrack(track) {
    await this.#audio.sender.replaceTrack(track);
  }

  /** Whether a microphone can be put in without connecting anew. */
  get sendsAudio() {
    return this.#audio.direction === "sendrecv";
  }

  getStats() {
    return this.#pc.getStats();
  }

  /** Leaves: tells the server both ways, since either may not get through. */
  close() {
    if (this.#over) return;
    this.send({ type: "bye" });
    this.#end();
    this.#goodbye();
  }

  #listen() {
    const pc = this.#pc;
    pc.addEventListener("track", (event) => {
      this.#media = event.streams[0] ?? this.#media;
      if (!this.#media.getTracks().includes(event.track)) this.#media.addTrack(event.track);
      this.#emit("media", this.#media);
    });
    pc.addEventListener("icecandidate", ({ candidate }) => {
      const item = {
        candidate: candidate?.candidate ?? "",
        sdpMid: candidate?.sdpMid ?? null,
        sdpMLineIndex: candidate?.sdpMLineIndex ?? null,
      };
      if (this.#location) this.#trickle(item);
      else this.#candidates.push(item);
    });
    pc.addEventListener("icecandidateerror", ({ url, errorCode, errorText }) => {
      if (/^turns?:/.test(url)) this.#turnErrors.push({ url, errorCode, errorText });
    });
    pc.addEventListener("connectionstatechange", () => this.#stateChanged());
    this.#channel.addEventListener("open", () => this.#up());
    this.#channel.addEventListener("close", () => this.#down("closed"));
    this.#channel.addEventListener("message", ({ data }) => this.#message(data));
  }

  #stateChanged() {
    clearTimeout(this.#disconnectedTimer);
    const state = this.#pc.connectionState;
    if (state === "failed" && this.#everUp) this.#down("ice-lost");
    else if (state === "failed") this.#failed();
    if (state === "disconnected") {
      // It often comes back by itself; the silence of the channel is watched as well.
      this.#disconnectedTimer = this.#after(DISCONNECTED_MS, () => this.#down("ice-lost"));
    }
  }

  #up() {
    this.#everUp = true;
    this.#emit("up");
    const timer = setInterval(() => this.#ping(), PING_INTERVAL_MS);
    this.#timers.add(timer);
    this.#ping();
  }

  async #ping() {
    const now = performance.now();
    if (this.#unanswered === 0) this.#silentSince = now;
    this.#unanswered += 1;
    this.send({ type: "ping", t: now });
    // Counting pings as well as time: a page that was frozen has sent none, and is not silence.
    if (this.#unanswered < 4) return;
    const came = await this.#mediaCame();
    const silentMs = now - this.#silentSince;
    if (this.#unanswered >= 4 && silentMs > (came ? MUTE_MS : SILENT_MS)) this.#down("silent");
  }

  /** Whether packets came since this was last asked. */
  async #mediaCame() {
    const before = this.#received;
    const report = await this.#pc.getStats().catch(() => null);
    if (!report) return false;
    const streams = [...report.values()].filter(({ type }) => type === "inbound-rtp");
    this.#received = streams.reduce((sum, { packetsReceived }) => sum + (packetsReceived ?? 0), 0);
    return this.#received > before;
  }

  #message(data) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      return;
    }
    if (event === null || typeof event !== "object") return;
    if (event.type === "pong") {
      this.#unanswered = 0;
      this.roundTripMs = performance.now() - event.t;
      return;
    }
    this.#emit("message", event);
  }

  #trickle(candidate) {
    const signal = this.#abort.signal;
    api.addCandidate(this.#location, candidate, { signal }).catch(() => {
      // Another candidate may do; if none does, the connection fails and says so.
    });
  }

  #gathered() {
    return new Promise((resolve) => {
      this.#after(GATHER_MS, resolve);
      this.#pc.addEventListener("icegatheringstatechange", () => {
        if (this.#pc.iceGatheringState === "complete") resolve();
      });
    });
  }

  /** No connection came about: finds out why, as far as can be known, before it ends. */
  async #failed() {
    const report = await this.#pc.getStats().catch(() => new Map());
    this.why = diagnose({
      report: [...report.values()],
      answer: this.#answer,
      host: location.hostname,
      turnErrors: this.#turnErrors,
    });
    this.#down("ice-failed");
  }

  // No goodbye: it is the same viewer that comes back, if the server still knows it then.
  #down(reason) {
    if (this.#over) return;
    this.#end();
    this.#emit("down", reason);
  }

  #end(lingerMs = 0) {
    this.#over = true;
    this.#abort.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    if (lingerMs) setTimeout(() => this.#pc.close(), lingerMs);
    else this.#pc.close();
  }

  #goodbye() {
    if (this.#location) api.removeViewer(this.#location);
    this.#location = null;
  }

  #after(ms, action) {
    const timer = setTimeout(action, ms);
    this.#timers.add(timer);
    return timer;
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function preferH264(transceiver) {
  const codecs = videoCodecs();
  if (!codecs || !transceiver.setCodecPreferences) return;
  transceiver.setCodecPreferences([...codecs].sort((a, b) => rank(a) - rank(b)));
}

// Constrained baseline in packetization mode 1 is what the avatar is encoded as.
function rank(codec) {
  if (!isH264(codec)) return 2;
  const { sdpFmtpLine = "" } = codec;
  const fits = sdpFmtpLine.includes("packetization-mode=1") && /profile-level-id=42e0/i.test(sdpFmtpLine);
  return fits ? 0 : 1;
}
