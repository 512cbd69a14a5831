// Runs experiments of the lab one after the other, as long as the tab is open: also while another page is shown.
//
// A job is { id, values, group, stage, started, error }. Its stages are "waiting", "loading", "running" and "failed"; a job that
// is done or cancelled is removed, and the record of one that is done is among the results.
export function createRunner(call, onResult) {
  const jobs = new Map(), results = new Map(), listeners = new Set();
  let current = null, controller = null;
  const notify = (id) => { for (const listener of listeners) listener(id); };

  async function run(job) {
    current = job;
    controller = new AbortController();
    const onEvent = ({ emitted }) => {
      if (!emitted) return;
      Object.assign(job, { stage: emitted.stage, started: performance.now() });
      notify(job.id);
    };
    try {
      const record = await call("run_experiment", { id: job.id, ...job.values }, { onEvent, signal: controller.signal });
      results.set(job.id, record);
      jobs.delete(job.id);
      onResult(record);
    } catch (error) {
      if (error.name === "AbortError") jobs.delete(job.id);
      else Object.assign(job, { stage: "failed", error });
    }
    current = null;
    notify(job.id);
    runNext();
  }
  function runNext() {
    const next = [...jobs.values()].find(({ stage }) => stage === "waiting");
    if (next && !current) run(next);
  }
  function cancel(id) {
    if (current?.id === id) return controller.abort();
    if (jobs.delete(id)) notify(id);
  }
  return {
    results,
    getJob: (id) => jobs.get(id) ?? null,
    isBusy: (id) => jobs.has(id) && jobs.get(id).stage !== "failed",
    listJobs: (group) => [...jobs.values()].filter((job) => job.group === group && job.stage !== "failed"),
    add(id, values, group = "") {
      jobs.delete(id);  // one that has failed
      jobs.set(id, { id, values, group, stage: "waiting", started: performance.now(), error: null });
      notify(id);
      runNext();
    },
    cancel,
    cancelGroup(group) { for (const { id } of [...jobs.values()].filter((job) => job.group === group)) cancel(id); },
    // Calls `listener(id)` when a job has changed; returns a function that ends this.
    follow(listener) { listeners.add(listener); return () => listeners.delete(listener); },
  };
}
