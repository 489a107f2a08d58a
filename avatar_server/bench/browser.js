// The receiving end of `avatar-server bench browser`. See stamp.py for what is read.
window.bench = (() => {
  const CELL = 16, BITS = 32, FULL_WIDTH = 1280;
  const pc = new RTCPeerConnection();
  const video = document.createElement("video");
  const canvas = document.createElement("canvas");
  canvas.width = CELL * BITS;
  canvas.height = CELL;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const media = new MediaStream();
  let latencies = [], unread = 0, shown = 0, longestGap = 0, lastShown = null;

  function readStamp() {
    // A viewer with a slow link is sent a smaller picture, and the time in it with it.
    const scale = video.videoWidth / FULL_WIDTH;
    const [width, height] = [canvas.width * scale, CELL * scale];
    context.drawImage(video, 0, 0, width, height, 0, 0, canvas.width, CELL);
    const { data } = context.getImageData(0, CELL / 2, canvas.width, 1);
    let word = 0n;
    for (let bit = 0; bit < BITS; bit += 1) {
      word = (word << 1n) | (data[4 * (bit * CELL + CELL / 2)] > 128 ? 1n : 0n);
    }
    const ms = Number(word >> 8n), sum = Number(word & 255n);
    return ((ms ^ (ms >> 8) ^ (ms >> 16) ^ 0xa5) & 255) === sum ? ms : null;
  }

  function onFrame() {
    const now = performance.timeOrigin + performance.now();
    const ms = readStamp();
    if (ms === null) unread += 1;
    else latencies.push((((Math.floor(now) - ms) % 0x1000000) + 0x1000000) % 0x1000000 + now % 1);
    shown += 1;
    if (lastShown !== null) longestGap = Math.max(longestGap, now - lastShown);
    lastShown = now;
    video.requestVideoFrameCallback(onFrame);
  }

  pc.ontrack = ({ track }) => {
    media.addTrack(track);
    video.srcObject = media;
  };

  async function inbound() {
    const report = await pc.getStats();
    return [...report.values()].find((s) => s.type === "inbound-rtp" && s.kind === "video") ?? {};
  }

  return {
    async offer() {
      video.autoplay = true;
      video.playsInline = true;
      document.body.append(video);
      video.requestVideoFrameCallback(onFrame);
      pc.createDataChannel("events");
      pc.addTransceiver("audio", { direction: "recvonly" });
      pc.addTransceiver("video", { direction: "recvonly" });
      await pc.setLocalDescription();
      while (pc.iceGatheringState !== "complete") await new Promise((r) => setTimeout(r, 20));
      return pc.localDescription.sdp;
    },
    answer: (sdp) => pc.setRemoteDescription({ type: "answer", sdp }),
    shown: () => shown,
    async counters() {
      const s = await inbound();
      return {
        at: performance.now(), frames_decoded: s.framesDecoded ?? 0, freezes: s.freezeCount ?? 0,
        freeze_s: s.totalFreezesDuration ?? 0, frames_dropped: s.framesDropped ?? 0,
        packets_lost: s.packetsLost ?? 0, keyframes: s.keyFramesDecoded ?? 0,
        width: s.frameWidth ?? 0, height: s.frameHeight ?? 0,
        decoder: s.decoderImplementation ?? "", shown,
      };
    },
    begin() { latencies = []; unread = 0; longestGap = 0; },
    seen: () => ({ latencies, unread, longest_gap_ms: longestGap }),
  };
})();
