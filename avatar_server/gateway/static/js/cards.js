// Avatars as cards. A picture the server is still drawing is asked for again until it is there.

import { reducedMotion } from "./dom.js";

const RETRY_MS = [500, 1_000, 2_000, 3_000, 5_000];
const MAX_TRIES = 40;

/** A card; with `name` it is one choice of a radio group. */
export function card(avatar, { choice = false } = {}) {
  const root = document.createElement(choice ? "label" : "div");
  root.className = "card";
  root.dataset.avatar = avatar.name;
  const picture = document.createElement("div");
  picture.className = "card-picture";
  const words = document.createElement("div");
  words.className = "card-words";
  const title = document.createElement("strong");
  title.textContent = avatar.title || avatar.name;
  const description = document.createElement("p");
  description.textContent = avatar.description || "";
  words.append(title, description);
  if (choice) {
    const input = document.createElement("input");
    input.type = "radio";
    input.name = "avatar";
    input.value = avatar.name;
    input.className = "visually-hidden";
    root.append(input);
  }
  root.append(picture, words);
  fill(picture, avatar.picture, "still");
  if (!reducedMotion()) fill(picture, avatar.preview, "moving");
  return root;
}

async function fill(holder, url, kind) {
  if (!url) return;
  for (let attempt = 0; attempt < MAX_TRIES; attempt += 1) {
    // The first look decides whether it is there, and whether it is a film or a picture.
    const type = await look(url);
    if (type !== null) {
      const element = await load(url, type).catch(() => null);
      if (element) {
        element.classList.add(kind);
        holder.append(element);
        return;
      }
    }
    await new Promise((resolve) => {
      setTimeout(resolve, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
    });
    if (attempt > 0 && !holder.isConnected) return;
  }
}

async function look(url) {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) });
    const type = response.headers.get("Content-Type") ?? "";
    const usable = response.status === 200 && /^(image|video)\//.test(type);
    if (!usable) {
      await response.body?.cancel();
      return null;
    }
    await response.arrayBuffer();
    return type;
  } catch {
    return null;
  }
}

function load(url, type) {
  return new Promise((resolve, reject) => {
    if (type.startsWith("video/")) {
      const video = document.createElement("video");
      Object.assign(video, { muted: true, loop: true, autoplay: true, playsInline: true });
      video.setAttribute("aria-hidden", "true");
      video.addEventListener("loadeddata", () => resolve(video), { once: true });
      video.addEventListener("error", reject, { once: true });
      video.src = url;
      video.play().catch(() => {});
    } else {
      const image = new Image();
      image.alt = "";
      image.addEventListener("load", () => resolve(image), { once: true });
      image.addEventListener("error", reject, { once: true });
      image.src = url;
    }
  });
}
