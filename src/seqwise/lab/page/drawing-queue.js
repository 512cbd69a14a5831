// Figures are drawn when they come near the screen, and in the background.
const MARGIN = "900px 0px", PAUSE = 20;  // around the screen; milliseconds between two in the background

export function createDrawingQueue() {
  const waiting = new Map();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) drawNow(target);
  }, { rootMargin: MARGIN });
  function drawNow(element) {
    waiting.get(element)?.();
    waiting.delete(element);
    observer.unobserve(element);
  }
  function drawRest() {
    const [next] = waiting.keys();
    if (!next) return;
    drawNow(next);
    setTimeout(drawRest, PAUSE);
  }
  return {
    watch(element, draw) { waiting.set(element, draw); observer.observe(element); },
    drawRest,
    drawAll() { for (const element of [...waiting.keys()]) drawNow(element); },
  };
}
