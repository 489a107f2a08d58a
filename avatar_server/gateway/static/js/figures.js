// What getStats says, as figures of the last second.

/** Takes reports of one connection, once a second; `take` gives figures or null. */
export class Figures {
  #last = null;

  take(report, nowMs) {
    let video = null;
    let audio = null;
    let pair = null;
    let selected = null;
    const pairs = new Map();
    for (const stat of report.values()) {
      if (stat.type === "inbound-rtp" && stat.kind === "video") video = stat;
      if (stat.type === "inbound-rtp" && stat.kind === "audio") audio = stat;
      if (stat.type === "candidate-pair") pairs.set(stat.id, stat);
      if (stat.type === "transport") selected = stat.selectedCandidatePairId ?? selected;
    }
    pair = pairs.get(selected) ?? [...pairs.values()].find((p) => p.nominated) ?? null;
    const current = {
      nowMs,
      frames: video?.framesDecoded ?? 0,
      bytes: (video?.bytesReceived ?? 0) + (audio?.bytesReceived ?? 0),
      received: (video?.packetsReceived ?? 0) + (audio?.packetsReceived ?? 0),
      lost: (video?.packetsLost ?? 0) + (audio?.packetsLost ?? 0),
    };
    const last = this.#last;
    this.#last = current;
    if (!last || nowMs <= last.nowMs) return null;
    const seconds = (nowMs - last.nowMs) / 1_000;
    const received = current.received - last.received;
    const lost = Math.max(0, current.lost - last.lost);
    return {
      fps: Math.max(0, current.frames - last.frames) / seconds,
      frames: current.frames,
      bitrateBps: (8 * Math.max(0, current.bytes - last.bytes)) / seconds,
      loss: received + lost > 0 ? lost / (received + lost) : 0,
      rttMs: pair?.currentRoundTripTime === undefined ? null : pair.currentRoundTripTime * 1_000,
      width: video?.frameWidth ?? 0,
      height: video?.frameHeight ?? 0,
    };
  }
}

export function median(values) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
