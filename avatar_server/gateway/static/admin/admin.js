// The operator's page: what runs, how full the machine is, and what went wrong last.

const POLL_MS = 2_000;
const STORED = "avatar-operator-key";
const byId = (id) => document.getElementById(id);

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

class Server {
  #key = sessionStorage.getItem(STORED);

  get signedIn() {
    return this.#key !== null;
  }

  use(key) {
    this.#key = key;
    if (key === null) sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, key);
  }

  async fetch(path, { method = "GET", body } = {}) {
    const headers = {};
    if (this.#key !== null) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(45_000),
    });
    if (response.ok) return response;
    let detail = `${response.status} ${response.statusText}`;
    try {
      detail = JSON.parse(await response.text()).detail || detail;
    } catch {
      // A proxy answered: the status says enough.
    }
    throw new Refused(response.status, detail);
  }

  async json(path, options) {
    return (await this.fetch(path, options)).json();
  }
}

const server = new Server();
const cards = new Map();
const cpuBefore = new Map();
let avatars = [];
let draining = false;

// --- small pieces --------------------------------------------------------------------------

function element(tag, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const milliseconds = (value) => `${Math.round(value).toLocaleString("en")} ms`;
const share = (value) => `${Math.round(value * 100)}%`;

function say(text, bad = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("problem", bad);
}

async function sure(title, text) {
  const dialog = byId("sure");
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("p").textContent = text;
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

// --- what is shown -------------------------------------------------------------------------

function showRoom(capacity) {
  const places = capacity.sessions === 1 ? "1 session" : `${capacity.sessions} sessions`;
  const measured = capacity.measured ? "" : " (a setting: this machine was not measured)";
  byId("room").textContent = `${capacity.running} of ${places} in use${measured}. `
    + (capacity.refused_because || `More would not fit: ${capacity.reason}.`);
  const { level, measures, reason } = capacity.overload;
  byId("overload").textContent = level === 0 ? "No overload: nothing is saved on."
    : `Overload level ${level}, because ${reason}: ${measures.join("; ")}.`;
  byId("overload").className = level === 0 ? "quiet" : "warning";
  byId("uses").replaceChildren(...capacity.uses_now.map((use) => {
    const part = use.used === null || use.bound <= 0 ? 1 : use.used / use.bound;
    const fill = element("div", { className: `fill${part > 1 ? " over" : part > 0.8 ? " high" : ""}` });
    fill.style.width = `${Math.min(100, part * 100)}%`;
    return element(
      "div",
      { className: "bar", title: `${use.used ?? "∞"} of ${use.bound} ${use.unit}` },
      element("span", { text: use.resource }),
      element("div", { className: "track" }, fill),
      element("span", { className: "number", text: share(part) }),
    );
  }));
}

function showProcesses(processes) {
  const now = performance.now() / 1_000;
  const seen = new Set();
  byId("processes").replaceChildren(...processes.map((one) => {
    seen.add(one.pid);
    const before = cpuBefore.get(one.pid);
    // A process reports once a second: a shorter step would show nothing or double.
    const fresh = !before || one.cpu_s !== before.cpu_s;
    const cores = before && fresh ? (one.cpu_s - before.cpu_s) / (now - before.at) : before?.cores;
    if (fresh) cpuBefore.set(one.pid, { cpu_s: one.cpu_s, at: now, cores });
    const name = one.session ? `avatar ${one.session.slice(0, 6)}` : one.role;
    return element(
      "tr",
      {},
      element("td", { text: name, title: `process ${one.pid}` }),
      element("td", { className: "number", text: cores === undefined ? "…" : share(cores) }),
      element("td", {
        className: "number",
        text: one.rss_bytes ? `${Math.round(one.rss_bytes / 1e6)} MB` : "–",
      }),
    );
  }));
  for (const pid of cpuBefore.keys()) if (!seen.has(pid)) cpuBefore.delete(pid);
}

function cardOf(session) {
  const known = cards.get(session.id);
  if (known) return known;
  const card = byId("session").content.firstElementChild.cloneNode(true);
  card.querySelector("a.button").href = `/s/${session.id}`;
  card.querySelector(".copy").addEventListener("click", (event) => copyLink(session.id, event.target));
  card.querySelector(".end").addEventListener("click", () => endSession(session));
  card.querySelector("a.button").addEventListener("click", async (event) => {
    event.preventDefault();
    // Opened now, in the click, or the browser takes it for an unwanted window.
    const opened = window.open("about:blank");
    const link = await linkOf(session.id);
    if (link && opened) opened.location = link;
    else opened?.close();
  });
  cards.set(session.id, card);
  byId("sessions").append(card);
  return card;
}

async function showSession(session) {
  const card = cardOf(session);
  const avatar = avatars.find(({ name }) => name === session.avatar);
  card.querySelector("h3").textContent = `${avatar?.title ?? session.avatar} – ${session.doing || session.state}`;
  const viewers = session.viewer_count === 1 ? "1 viewer" : `${session.viewer_count} viewers`;
  const facts = [viewers];
  if (session.fps) facts.push(`${session.fps.toFixed(1)} fps`, `${session.render_ms.toFixed(1)} ms to draw`);
  if (session.bitrate_bps) facts.push(`${Math.round(session.bitrate_bps / 1e3)} kbit/s`);
  if (session.late_frames) facts.push(`${session.late_frames} late frames`);
  if (session.restarts) facts.push(`${session.restarts} restarts`);
  if (session.always_on) facts.push("always on");
  if (session.recording_problem) facts.push(`not recorded any more: ${session.recording_problem}`);
  else if (session.recorded) facts.push("recorded");
  card.querySelector(".figures").textContent = facts.join(" · ");
  const [summary, picture] = await Promise.all([
    server.json(`/v1/sessions/${session.id}/turns`).then(({ summary: found }) => found, () => null),
    server.fetch(`/v1/sessions/${session.id}/picture`).then((r) => (r.status === 200 ? r.blob() : null), () => null),
  ]);
  showLatency(card, summary);
  const image = card.querySelector("img");
  image.alt = `What ${avatar?.title ?? session.avatar} shows`;
  const old = image.src;
  image.src = picture ? URL.createObjectURL(picture) : avatar?.picture ?? "";
  if (old.startsWith("blob:")) URL.revokeObjectURL(old);
}

function showLatency(card, summary) {
  const latency = summary?.voice_to_voice_ms;
  card.querySelector(".latency").textContent = latency
    ? `voice to voice ${milliseconds(latency.p50)} (p50), ${milliseconds(latency.p95)} (p95), ${summary.turns} turns`
    : "no spoken turn yet";
  const stages = Object.entries(summary?.stages_ms ?? {}).filter(([, value]) => value.p50 > 0);
  const total = stages.reduce((sum, [, value]) => sum + value.p50, 0);
  card.querySelector(".stages").hidden = total === 0;
  card.querySelector(".stages").replaceChildren(...stages.map(([stage, value], index) => {
    const part = element("span", {
      className: `s${(index % 6) + 1}`,
      title: `${stage}: ${milliseconds(value.p50)} (p50)`,
    });
    part.style.width = `${(100 * value.p50) / total}%`;
    return part;
  }));
  card.querySelector(".legend").replaceChildren(...stages.map(([stage, value], index) => element(
    "span",
    { className: `s${(index % 6) + 1}`, text: `${stage} ${milliseconds(value.p50)}` },
  )));
}

function showLog(lines) {
  const bad = lines.filter(({ level }) => level === "warning" || level === "error" || level === "critical");
  byId("no-log").hidden = bad.length > 0;
  byId("log").replaceChildren(...bad.slice(-12).reverse().map((line) => element("li", {
    className: line.level === "warning" ? "warning" : "error",
    text: `${line.time.slice(11, 19)} ${line.role}${line.session ? ` ${line.session.slice(0, 6)}` : ""}: ${line.message}`,
  })));
}

// --- what is done --------------------------------------------------------------------------

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.status === 401) askForKey(error.message);
    else say(error.message, true);
    return null;
  }
}

async function linkOf(session) {
  const made = await attempt(() => server.json(`/v1/sessions/${session}/links`, { method: "POST", body: {} }));
  return made && new URL(made.link, location.origin).href;
}

async function copyLink(session, button) {
  const link = await linkOf(session);
  if (!link) return;
  try {
    await navigator.clipboard.writeText(link);
    button.textContent = "Copied";
  } catch {
    // Without https there is no clipboard.
    window.prompt("The link:", link);
  }
  setTimeout(() => { button.textContent = "Copy a link"; }, 2_000);
}

async function endSession({ id, avatar, viewer_count: viewers }) {
  const watched = viewers === 0 ? "Nobody is watching." : `${viewers} watching: they will be told.`;
  if (!await sure(`End the session of ${avatar}?`, watched)) return;
  await attempt(() => server.fetch(`/v1/sessions/${id}`, { method: "DELETE" }));
  look();
}

async function drain() {
  if (draining) {
    await attempt(() => server.fetch("/v1/drain", { method: "DELETE" }));
  } else if (await sure(
    "Drain the server?",
    "It takes no new conversations, lets those that run finish within 5 minutes, and then stops.",
  )) {
    await attempt(() => server.fetch("/v1/drain", { method: "POST", body: { deadline_s: 300 } }));
  }
  look();
}

async function launch(event) {
  event.preventDefault();
  const button = byId("launch").querySelector("button");
  button.disabled = true;
  await attempt(async () => {
    await server.fetch("/v1/sessions", { method: "POST", body: { avatar: byId("avatar").value } });
  });
  button.disabled = false;
  look();
}

function askForKey(problem = "") {
  byId("key").hidden = false;
  byId("board").hidden = true;
  byId("forget").hidden = true;
  byId("key-problem").textContent = server.signedIn ? problem : "";
  say("A key is needed.");
}

// --- keeping it true -----------------------------------------------------------------------

let looking = null;

function look() {
  looking ??= once().finally(() => { looking = null; });
  return looking;
}

async function once() {
  try {
    if (avatars.length === 0) {
      avatars = await server.json("/v1/avatars");
      byId("avatar").replaceChildren(...avatars.map(({ name, title }) => element("option", { value: name, text: title || name })));
    }
    const [status, sessions, capacity, processes, drainState, lines] = await Promise.all([
      server.json("/v1/status"),
      server.json("/v1/sessions?limit=100"),
      server.json("/v1/capacity"),
      server.json("/v1/processes"),
      server.json("/v1/drain"),
      server.json("/v1/logs?last=500"),
    ]);
    byId("key").hidden = true;
    byId("board").hidden = false;
    byId("forget").hidden = !server.signedIn;
    draining = drainState.draining;
    byId("drain").textContent = draining ? "Take sessions again" : "Drain …";
    byId("launch").querySelector("button").disabled = draining || !status.ready;
    say(draining ? `Draining: ${drainState.sessions} running, ${Math.round(drainState.seconds_left)} s left.`
      : status.ready ? `Ready. avatar-server ${status.version}` : status.reason);
    showRoom(capacity);
    showProcesses(processes);
    showLog(lines);
    byId("no-sessions").hidden = sessions.length > 0;
    const ids = new Set(sessions.map(({ id }) => id));
    for (const [id, card] of cards) {
      if (ids.has(id)) continue;
      card.remove();
      cards.delete(id);
    }
    await Promise.all(sessions.map(showSession));
  } catch (error) {
    if (error.status === 401 || error.status === 403) askForKey(error.message);
    else say(error instanceof Refused ? error.message : "The server cannot be reached. Trying again.", true);
  }
}

byId("launch").addEventListener("submit", launch);
byId("drain").addEventListener("click", drain);
byId("forget").addEventListener("click", () => {
  server.use(null);
  look();
});
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  server.use(byId("secret").value.trim());
  byId("secret").value = "";
  look();
});

async function keep() {
  if (!document.hidden) await look();
  setTimeout(keep, POLL_MS);
}
keep();
document.addEventListener("visibilitychange", () => document.hidden || look());
