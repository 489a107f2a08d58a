/** The element with this id; one that is missing is a mistake in the page, said at once. */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

export function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
