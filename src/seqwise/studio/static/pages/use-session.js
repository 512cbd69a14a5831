// The requests of the page: a new one cancels the one before it.
export function createSession(studio, onBusy) {
  let controller = null;
  const stop = () => controller?.abort();
  return {
    stop,
    // Returns the result, or null if the request was cancelled.
    async call(name, values, onEvent = () => {}) {
      stop();
      const own = controller = new AbortController();
      onBusy(true);
      try {
        return await studio.call(name, values, { signal: own.signal, onEvent: (event) => { if (controller === own && !own.signal.aborted) onEvent(event); } });
      } catch (error) {
        if (own.signal.aborted) return null;
        throw error;
      } finally {
        if (controller === own) {
          controller = null;
          onBusy(false);
        }
      }
    },
  };
}
