// What the page says when something is not as it should be: what is wrong, and what to do.
//
// A notice is {code, title, text, tone, blocking}. A blocking one stands over the stage while the
// page works on it; a passing one can be dismissed.

const passing = (code, title, text, tone = "warn") => ({
  code, title, text, tone, blocking: false,
});
const blocking = (code, title, text, tone = "busy") => ({
  code, title, text, tone, blocking: true,
});

export function microphone(code, message = "") {
  switch (code) {
    case "insecure":
      return passing(
        "mic-insecure",
        "Typing only: this page is not on https",
        `Browsers give the microphone only to https pages and to localhost; this page came over `
        + `plain http from ${location.hostname}. To speak, open it over https, or on the server's `
        + `own machine as http://localhost${location.port ? `:${location.port}` : ""}.`,
      );
    case "refused":
      if (/system/i.test(message)) {
        return passing(
          "mic-refused",
          "The microphone is blocked by this device",
          "Allow microphone access for your browser in the device's privacy settings, then press "
          + "the microphone button. Until then you can type.",
        );
      }
      return passing(
        "mic-refused",
        "The microphone is not allowed",
        "To speak, allow it in the site settings beside the address and press the microphone "
        + "button. Until then you can type.",
      );
    case "none":
      return passing(
        "mic-none",
        "No microphone found",
        "Plug one in or switch it on, then press the microphone button. Until then you can type.",
      );
    case "busy":
      return passing(
        "mic-busy",
        "The microphone is in use",
        "Another program seems to hold it. Close that program, then press the microphone button. "
        + "Until then you can type.",
      );
    default:
      return passing(
        "mic-failed",
        "The microphone does not work here",
        `${message || "This browser gives no microphone to pages."} You can type instead.`,
      );
  }
}

export const askingMicrophone = () => blocking(
  "mic-asking",
  "May we listen?",
  "Your browser is asking for the microphone. Your voice goes to this server only while you are "
  + "in the conversation.",
);

export const microphoneChanged = ({ was, now }) => (now
  ? passing("mic-changed", "Microphone unplugged", `“${was}” is gone. Now listening on “${now}”.`, "info")
  : passing(
    "mic-none",
    "Microphone unplugged",
    `“${was}” is gone and there is no other. Plug one in, or type.`,
  ));

export const microphoneAvailable = () => passing(
  "mic-available", "Microphone found", "Press the microphone button to speak.", "info",
);

export const unsupported = (missing) => blocking(
  `unsupported-${missing}`,
  missing === "h264" ? "This browser cannot play H.264 video" : "This browser has no WebRTC",
  "Use a current Chrome, Edge, Firefox or Safari. If WebRTC was switched off in this browser's "
  + "settings or by an extension, switch it on and reload.",
  "error",
);

export const starting = (phase) => blocking(
  "starting",
  "The server is starting",
  `${phase ? `${sentence(phase)} ` : ""}You will join as soon as it is ready.`,
);

export const full = (max, because = "") => blocking(
  "full",
  "All places are taken",
  `${because || holds(max)} You will join by yourself as soon as a place is free, which is at once`
  + " when everybody has left one.",
);

const holds = (max) => (max > 1
  ? `This server holds ${max} conversations at a time.`
  : "This server holds one conversation at a time.");

export const busy = (error) => blocking(
  "busy",
  error.title || "The server cannot take you yet",
  `${sentence(error.detail)} Trying again by itself.`.trim(),
);

export const gone = (offline) => blocking(
  "gone",
  offline ? "You are offline" : "The server cannot be reached",
  offline
    ? "This device has no network. The conversation goes on when it is back."
    : "It may be restarting, or your network may be down. Trying again by itself; this page "
      + "rejoins when the server is back.",
);

export function lost(reason, why = null) {
  switch (reason) {
    case "ice-failed":
      return blocking(
        "ice-failed",
        "Picture and sound cannot get through",
        `${noMedia(why)} Trying again by itself.`,
        "error",
      );
    case "silent":
      return blocking("silent", "The avatar fell silent", "Nothing comes any more. Reconnecting.");
    default:
      return blocking("lost", "The connection broke", "Reconnecting.");
  }
}

// See diagnosis.js for the codes.
function noMedia(why) {
  switch (why?.code) {
    case "no-remote":
      return "The server named no address to send them from. Whoever runs it finds the cause in its "
        + "log: it needs a network address, or media.public_address.";
    case "no-local":
      return "This browser gives no network address to calls. Its settings or an extension restrict "
        + "WebRTC: allow it for this site and reload.";
    case "turn":
      return `The relay of this server could not be used (${why.where}). Try another network; whoever `
        + "runs the server should check its TURN server and media.turn_secret.";
    case "private":
      return `The server is only reachable inside its own network, at ${why.where}. Whoever runs it `
        + "must set media.public_address or add a TURN server.";
    case "handshake":
      return `A way to ${why.where} was found, but encryption could not be agreed on: something on `
        + "the way may interfere. Try another network or switch off the VPN.";
    case "one-way":
      return `The server at ${why.where} gets through to this browser, but answers get lost. Try `
        + "another network or switch off the VPN; a TURN server would help.";
    default:
      return `Nothing came back from ${why?.where || "the server"}: this network, or the server's `
        + "firewall, seems to block UDP. Try another network or switch off the VPN; whoever runs the "
        + "server can open media.udp_ports or add a TURN server.";
  }
}

export const serverError = (error) => blocking(
  "server-error",
  error.title || "The server made a mistake",
  `${sentence(error.detail)} Trying again by itself.`.trim(),
  "error",
);

export const refused = (error) => blocking(
  "refused",
  error.title || "The server refused",
  error.detail || "Go back and choose another avatar.",
  "error",
);

export const linkRefused = (error) => passing(
  "link-refused",
  "You cannot join with this link",
  sentence(error.detail),
  "error",
);

export const invitationOnly = () => passing(
  "invitation-only",
  "Conversations here are by invitation",
  "Open the link that you were given. Whoever runs the server can make one.",
  "info",
);

export const ended = (why) => blocking(
  "ended",
  "This conversation has ended",
  why ? sentence(why) : "Start a new one whenever you like.",
  "info",
);

export const lobbyStarting = (phase) => passing(
  "starting",
  "The server is starting",
  `${phase ? `${sentence(phase)} ` : ""}You can choose already; you will join when it is ready.`,
  "busy",
);

export const lobbyGone = () => passing(
  "gone",
  "The server cannot be reached",
  "Trying again by itself. If it lasts, check that the server runs and that you are online.",
  "busy",
);

export const noAvatars = () => passing(
  "no-avatars",
  "There are no avatars here",
  "Whoever runs the server can add one: a folder with an avatar.yaml in its avatar folders.",
);

export const watching = () => passing(
  "watching",
  "You are watching",
  "Someone else has the floor. You see and hear everything; speaking and typing are theirs.",
  "info",
);

export const lossy = (percent) => passing(
  "lossy",
  "The network is losing packets",
  `${percent}% were lost in the last seconds, so sound and picture may stutter. A stronger signal `
  + "or a cable helps.",
);

export const noPicture = () => passing(
  "no-picture",
  "No picture is arriving",
  "The connection stands, but no video comes through. If it lasts, reload the page.",
);

export const fromServer = (event) => passing(
  `server-${event.code}`, sentence(event.message), "", "info",
);

function sentence(text) {
  const trimmed = (text ?? "").trim();
  if (!trimmed) return "";
  const first = trimmed[0].toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}
