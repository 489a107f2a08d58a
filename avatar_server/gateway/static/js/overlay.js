// The figures of the conversation, shown on demand.

import { byId, setText } from "./dom.js";
import { median } from "./figures.js";

const STAGE_NAMES = {
  endpoint: "End of turn",
  end_of_turn: "Turn check",
  stt: "Recognition",
  route: "Routing",
  facts: "Facts",
  retrieval: "Facts",
  llm: "First words",
  llm_first_token: "First words",
  tts: "Voice",
  tts_first: "Voice",
  playout: "Playout",
  render: "Drawing",
  encode: "Encoding",
};

export class Overlay {
  #root = byId("overlay");
  #toggle = byId("overlay-toggle");
  #latencies = [];
  #lastMs = null;
  #reduced = false;

  constructor() {
    this.#toggle.addEventListener("click", () => this.toggle());
  }

  toggle() {
    this.#root.hidden = !this.#root.hidden;
    this.#toggle.setAttribute("aria-pressed", String(!this.#root.hidden));
  }

  get voiceToVoice() {
    return {
      lastMs: this.#lastMs, p50Ms: median(this.#latencies), turns: this.#latencies.length,
    };
  }

  reset() {
    this.#latencies = [];
    this.#lastMs = null;
    byId("stages").replaceChildren();
    for (const id of ["v2v-last", "v2v-p50", "fig-fps", "fig-size", "fig-bitrate", "fig-rtt",
      "fig-loss", "fig-server-fps", "fig-render", "fig-encode", "fig-viewers",
      "fig-overload"]) setText(id, "–");
    setText("v2v-count", "0");
  }

  /** `TurnDone` of the server. */
  turn({
    voice_to_voice_ms: latencyMs, stages_ms: stages, budget_ms: budgetMs, ledger_ms: ledger,
    overran, acknowledged_ms: acknowledgedMs,
  }) {
    if (latencyMs !== null && latencyMs !== undefined) {
      this.#latencies.push(latencyMs);
      this.#lastMs = latencyMs;
      setText("v2v-last", milliseconds(latencyMs));
      setText("v2v-p50", milliseconds(median(this.#latencies)));
      setText("v2v-count", String(this.#latencies.length));
    }
    this.#drawStages(Object.entries(stages ?? {}), ledger ?? {}, overran);
    const notes = [];
    if (overran) {
      const stage = STAGE_NAMES[overran] ?? overran.replaceAll("_", " ");
      notes.push(`${stage} overran the budget of ${milliseconds(budgetMs)}`);
    }
    if (acknowledgedMs !== null && acknowledgedMs !== undefined) {
      notes.push(`a remark covered the wait from ${milliseconds(acknowledgedMs)}`);
    }
    byId("stages").title = notes.join("; ");
  }

  /** `Stats` of the server. */
  server(stats) {
    const { fps, render_ms: renderMs, encode_ms: encodeMs, viewers } = stats;
    const { overload, overload_text: saved } = stats;
    this.#reduced = stats.layer === "low";
    setText("fig-server-fps", `${fps.toFixed(1)} /s`);
    setText("fig-render", `${renderMs.toFixed(1)} ms`);
    setText("fig-encode", `${encodeMs.toFixed(1)} ms`);
    setText("fig-viewers", String(viewers));
    setText("fig-overload", overload ? `level ${overload}: ${saved}` : "none");
  }

  /** Figures of the browser, see figures.js. */
  browser(figures, roundTripMs) {
    setText("fig-fps", `${figures.fps.toFixed(1)} /s`);
    const size = figures.width ? `${figures.width} × ${figures.height}` : "–";
    setText("fig-size", this.#reduced ? `${size}, for a slow link` : size);
    setText("fig-bitrate", bitrate(figures.bitrateBps));
    const rtt = figures.rttMs ?? roundTripMs;
    setText("fig-rtt", rtt === null ? "–" : `${rtt.toFixed(rtt < 10 ? 1 : 0)} ms`);
    setText("fig-loss", `${(100 * figures.loss).toFixed(1)} %`);
  }

  #drawStages(stages, ledger, overran) {
    const spans = stages.filter(([, span]) => Array.isArray(span) && span.length === 2);
    spans.sort((a, b) => a[1][0] - b[1][0]);
    const first = Math.min(0, ...spans.map(([, [start]]) => start));
    const last = Math.max(1, ...spans.map(([, [, end]]) => end));
    const percent = (ms) => `${(100 * (ms - first)) / (last - first)}%`;
    byId("stages").replaceChildren(...spans.map(([name, [start, end]]) => {
      const row = document.createElement("li");
      row.dataset.stage = name;
      const label = document.createElement("span");
      label.textContent = STAGE_NAMES[name] ?? name.replaceAll("_", " ");
      const track = document.createElement("i");
      const bar = document.createElement("b");
      bar.style.setProperty("--from", percent(start));
      bar.style.setProperty("--to", percent(end));
      track.style.setProperty("--zero", percent(0));
      track.append(bar);
      const figure = document.createElement("em");
      figure.textContent = milliseconds(end - start);
      row.title = `${Math.round(start)} to ${Math.round(end)} ms after the end of speech`;
      if (ledger[name]) {
        const [took, granted] = ledger[name];
        row.title += `; of the budget ${milliseconds(took)}, granted ${milliseconds(granted)}`;
      }
      if (name === overran) row.dataset.overran = "true";
      row.append(label, track, figure);
      return row;
    }));
  }
}

const milliseconds = (ms) => `${Math.round(ms)} ms`;

function bitrate(bps) {
  return bps >= 1e6 ? `${(bps / 1e6).toFixed(2)} Mbit/s` : `${Math.round(bps / 1e3)} kbit/s`;
}
