// Why picture and sound do not get through, from what the browser saw of it.

// RFC 1918, 3927, 6598; loopback; RFC 4193 and link-local of IPv6.
const PRIVATE = [
  /^10\./, /^127\./, /^169\.254\./, /^192\.168\./, /^172\.(1[6-9]|2\d|3[01])\./,
  /^100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\./, /^::1$/, /^f[cd]/i, /^fe[89ab]/i,
];
const LOCAL_NAME = /^[^.]+$|\.(local|localhost|lan|home|internal|home\.arpa)$/i;

/** The addresses that an SDP answer names, as {address, port, type}. */
export function addresses(sdp) {
  return [...sdp.matchAll(/^a=candidate:\S+ \d+ \S+ \d+ (\S+) (\d+) typ (\w+)/gm)]
    .map(([, address, port, type]) => ({ address, port: Number(port), type }));
}

/**
 * `report` are the connection's statistics (a list), `answer` the server's SDP, `host` what the
 * page was opened with, `turnErrors` the errors of TURN servers. Gives {code, where}:
 *
 * no-remote: the server named no address; no-local: this browser has none; turn: we could not
 * use the TURN server; private: the server named only addresses of its own network; handshake: a
 * path was found, but no encryption agreed; one-way: we hear the server, it does not hear us;
 * no-answer: nothing came back.
 */
export function diagnose({ report, answer, host, turnErrors = [] }) {
  const named = addresses(answer);
  if (named.length === 0) return { code: "no-remote", where: "" };
  const where = [...new Set(named.map(shown))].slice(0, 3).join(", ");
  const pairs = report.filter(({ type }) => type === "candidate-pair");
  const local = report.filter(({ type }) => type === "local-candidate");
  if (pairs.some(({ state }) => state === "succeeded")) return { code: "handshake", where };
  // Without permission for the microphone a browser hides its addresses, but has some.
  if (local.length === 0 && pairs.length === 0) return { code: "no-local", where };
  const relayed = local.some(({ candidateType }) => candidateType === "relay");
  if (turnErrors.length > 0 && !relayed) {
    const { url, errorCode, errorText } = turnErrors[0];
    return { code: "turn", where: `${url}: ${errorText || "no answer"} (${errorCode})` };
  }
  if (!isPrivate(host) && named.every(({ address }) => isPrivate(address))) {
    return { code: "private", where };
  }
  if (pairs.some(({ requestsReceived }) => requestsReceived > 0)) return { code: "one-way", where };
  return { code: "no-answer", where };
}

function isPrivate(host) {
  const name = host.replace(/^\[|\]$/g, "");
  const literal = /^[\d.]+$/.test(name) || name.includes(":");
  return literal ? PRIVATE.some((range) => range.test(name)) : LOCAL_NAME.test(name);
}

function shown({ address, port }) {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
