// The server's HTTP API. Every call has a timeout, and fails with one of two errors:
// `ApiError` where the server answered, `Unreachable` where it did not.

const TIMEOUT_MS = 10_000;

export class ApiError extends Error {
  constructor(status, title, detail, retryAfterS) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.retryAfterS = retryAfterS;
  }
}

export class Unreachable extends Error {
  constructor(message) {
    super(message);
    this.name = "Unreachable";
  }
}

// What lets us into a session, where the server asks for it; kept for a reload of this tab only.
const STORED = "avatar-link-";
const SESSION_PATH = /^\/v1\/sessions\/([^/?]+)/;

export function rememberToken(session, token) {
  try {
    sessionStorage.setItem(STORED + session, token);
  } catch {
    // Without storage the link works until the page is reloaded.
  }
  tokens.set(session, token);
}

const tokens = new Map();

function authorization(path) {
  const session = SESSION_PATH.exec(path)?.[1];
  if (!session) return {};
  let token = tokens.get(session);
  try {
    token ??= sessionStorage.getItem(STORED + session);
  } catch {
    // As above.
  }
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function request(method, path, { body, type, signal, timeoutMs = TIMEOUT_MS } = {}) {
  const timeout = AbortSignal.timeout(timeoutMs);
  const headers = {
    Accept: "application/json, application/sdp, application/problem+json",
    ...authorization(path),
  };
  if (type) headers["Content-Type"] = type;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body,
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    if (response.ok) return { response, text: await response.text() };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(timeout.aborted ? "The server did not answer in time." : error.message);
  }
  throw await problem(response);
}

async function problem(response) {
  let title = response.statusText || `Error ${response.status}`;
  let detail = "";
  try {
    const document = JSON.parse(await response.text());
    if (typeof document.title === "string") title = document.title;
    if (typeof document.detail === "string") detail = document.detail;
  } catch {
    // A proxy between page and server answers with HTML: the status says enough.
  }
  const seconds = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  // 502 and 504 are what a proxy says for a server that is down.
  if (response.status === 502 || response.status === 504) return new Unreachable(title);
  return new ApiError(response.status, title, detail, Number.isFinite(seconds) ? seconds : null);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Unreachable("Something else than the avatar server answered.");
  }
}

export async function getAvatars(options) {
  return parse((await request("GET", "/v1/avatars", options)).text);
}

export async function getStatus(options) {
  return parse((await request("GET", "/v1/status", options)).text);
}

export async function getSession(id, options) {
  return parse((await request("GET", `/v1/sessions/${encodeURIComponent(id)}`, options)).text);
}

/** STUN and TURN servers for one connection: an account among them may end by itself. */
export async function getIceServers(session, options) {
  const path = `/v1/sessions/${encodeURIComponent(session)}/ice-servers`;
  return parse((await request("GET", path, options)).text);
}

/** Starting an avatar process takes seconds, so this call is given longer. */
export async function createSession(avatar, options) {
  const { text } = await request("POST", "/v1/sessions", {
    body: JSON.stringify({ avatar }),
    type: "application/json",
    timeoutMs: 40_000,
    ...options,
  });
  const session = parse(text);
  if (session.token) rememberToken(session.id, session.token);
  return session;
}

/** Hands in an SDP offer; gives the answer and the address of this viewer. */
export async function offer(session, speak, sdp, options) {
  const path = `/v1/sessions/${encodeURIComponent(session)}/viewers?speak=${speak}`;
  const { response, text } = await request("POST", path, {
    body: sdp,
    type: "application/sdp",
    timeoutMs: 15_000,
    ...options,
  });
  return { sdp: text, location: response.headers.get("Location") };
}

/**
 * Hands in an offer of a viewer already there, at its address: its network changed. Throws a 404
 * where the server has given it up meanwhile.
 */
export async function offerAgain(location, speak, sdp, options) {
  const { text } = await request("PUT", `${location}?speak=${speak}`, {
    body: sdp,
    type: "application/sdp",
    timeoutMs: 15_000,
    ...options,
  });
  return { sdp: text, location };
}

export async function addCandidate(location, candidate, options) {
  const body = JSON.stringify(candidate);
  await request("PATCH", location, { body, type: "application/json", ...options });
}

/** Says goodbye so that it is sent even while the page is being closed. */
export function removeViewer(location) {
  fetch(location, { method: "DELETE", keepalive: true, headers: authorization(location) }).catch(() => {
    // The server notices by itself that a viewer is gone.
  });
}
