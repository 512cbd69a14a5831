// A form for a new training or comparison: the command that it stands for is always visible, the data is checked before it
// starts, and what was started is listed with its state. The address keeps what is filled in.
import { make, makeButton, makeChoice, makeCopyButton } from "../../../page/components/elements.js";
import { loadStyle } from "../styles.js";
import { makeReport } from "./new-check.js";
import { makeData } from "./new-data.js";
import { makeFamilyBoxes, makeField } from "./new-fields.js";
import { makeJobs } from "./new-jobs.js";
import { makeSettings } from "./new-settings.js";

const PREVIEW_MILLISECONDS = 120;
const FIRST = ["task", "model", "models", "budget", "seeds"];  // the fields beside the data and the name
const HELP = { task: "What the model learns; automatic: detected from the data.", model: "The family of the model.", models: "" };
const NAME_FIELD = { name: "name", section: "", kind: "text", choices: [], default: null, empty: "", help: "Folder in which everything is saved.", limits: {} };

export async function show(element, parameters, studio) {
  const command = parameters.get("command") === "compare" ? "compare" : "train";
  const [form] = await Promise.all([studio.get("/api/form", { command }), loadStyle("new")]);
  element.append(make("h1", {}, command === "compare" ? "New comparison" : "New training"));
  if (!form.folders.length) {
    element.append(studio.makeError({ problem: "new runs cannot be saved in the folders of this studio.", fix: "Start it with a folder of runs: seqwise studio runs" }));
    return {};
  }
  const page = new NewPage(element, parameters, studio, form, command);
  return { update: (rows) => page.jobs.update(rows), close: () => page.close() };
}

// Lines break between words only, not after the dashes of an option; the text is the command itself.
const makeWords = (command) => command.split(" ").flatMap((word, index) => [index ? " " : "", make("span", {}, word)]);

class NewPage {
  constructor(element, parameters, studio, form, command) {
    Object.assign(this, { studio, form, command, timer: 0, detected: { data: "", task: "" }, checked: "", preview: null });
    this.request = new AbortController();
    const change = () => this.schedule();
    const byName = new Map(form.fields.map((field) => [field.name, field]));
    this.data = makeData(studio, form, change);
    this.name = makeField(NAME_FIELD, change, { label: "Name" });
    const folders = { ...NAME_FIELD, name: "folder", kind: "choice", choices: form.folders.map(({ name }) => name), default: form.folders[0].name, help: "" };
    this.folder = makeField(folders, change, { label: "Saved in" });
    this.folder.element.hidden = form.folders.length < 2;
    const first = FIRST.filter((name) => byName.has(name)).map((name) => name === "models"
      ? makeFamilyBoxes(byName.get(name), form.families, change) : makeField(byName.get(name), change, { help: HELP[name] ?? byName.get(name).help }));
    const main = form.main.filter((name) => byName.has(name) && !FIRST.includes(name)).map((name) => makeField(byName.get(name), change));
    this.settings = makeSettings(form, new Set([...first, ...main].map(({ name }) => name)), change);
    this.main = main;
    this.fields = [...first, ...main, ...this.settings.fields];
    this.jobs = makeJobs(studio);
    this.makeActions();

    this.data.set(parameters.get("data") ?? "");
    this.name.set(parameters.get("name") ?? undefined);
    this.folder.set(parameters.get("folder") ?? undefined);
    for (const field of this.fields) if (parameters.has(field.name)) field.set(parameters.get(field.name));
    const mode = makeChoice("", [["train", "Train a model"], ["compare", "Compare models"]], command, (value) => {
      const kept = Object.fromEntries([...parameters, ...Object.entries(this.collectAddress())].filter(([name]) => name !== "command" && name !== "name"));
      studio.go("new", { ...kept, command: value === "compare" ? value : null });
    });
    mode.setAttribute("aria-label", "What to start");
    element.append(mode, make("div", { class: "new-layout" },
      make("div", { class: "card new-first" }, this.data.element, ...first.map((field) => field.element), this.name.element, this.folder.element),
      make("div", { class: "new-side" }, this.actions, this.jobs.element),
      make("div", { class: "new-rest" }, make("h2", {}, "Common settings"), make("div", { class: "card new-grid" }, ...main.map((field) => field.element)), this.settings.element)));
    this.schedule(0);
    this.jobs.refresh();
  }

  makeActions() {
    const noun = this.command === "compare" ? "comparison" : "training";
    this.commandText = make("pre", { class: "new-command" });
    this.copyButton = makeCopyButton(this.commandText);
    this.report = make("div", { "aria-live": "polite" });
    this.checkButton = makeButton("Check the data", () => this.check());
    this.startButton = makeButton(`Start the ${noun}`, () => this.start(), { class: "primary" });
    this.cancelButton = makeButton("Cancel", () => this.checking?.abort(), { hidden: true });
    this.actions = make("section", { class: "card new-actions", "aria-label": "Start" }, make("p", { class: "label" }, "Command"),
      make("div", { class: "command" }, this.commandText, this.copyButton),
      make("div", { class: "row" }, this.startButton, this.checkButton, this.cancelButton), this.report);
  }

  // --- values
  collect() {
    const values = Object.fromEntries(this.fields.map((field) => [field.name, field.get()]).filter(([, value]) => value !== undefined));
    const detected = this.detected.data === this.data.get() ? this.detected.task : "";
    return { command: this.command, values: { data: this.data.get(), ...values }, name: this.name.get() ?? "", folder: this.folder.get() ?? "", detected_task: detected };
  }

  collectAddress() {
    const { values, name, folder } = this.collect();
    return { command: this.command === "compare" ? "compare" : null, ...values, name, folder };
  }

  // --- the command
  schedule(milliseconds = PREVIEW_MILLISECONDS) {
    clearTimeout(this.timer);
    this.studio.keep("new", this.collectAddress());
    this.timer = setTimeout(() => this.showCommand(), milliseconds);
    this.preview = null;
    this.enable();
  }

  async showCommand() {
    this.request.abort();
    this.request = new AbortController();
    try {
      const preview = await this.studio.send("/api/command", this.collect(), { signal: this.request.signal });
      this.preview = preview;
      this.commandText.replaceChildren(...makeWords(preview.command || `seqwise ${this.command} DATA`));
      const problems = { ...preview.problems };
      if (!this.data.get()) delete problems.data;  // an empty form is no mistake yet
      for (const field of [this.data, this.name, ...this.fields]) field.showProblem(problems[field.name]);
      this.name.control.placeholder = preview.name;
      for (const field of this.main) field.element.hidden = field.name in preview.unused;
      this.settings.update(preview.unused);
      if (preview.check_command !== this.checked) this.report.replaceChildren();
      this.enable();
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error);
    }
  }

  enable() {
    const isReady = this.preview !== null && !Object.keys(this.preview.problems).length && !this.checking;
    const buttons = [this.checkButton, this.startButton];
    if (!isReady) this.blurred = buttons.find((button) => button === document.activeElement) ?? this.blurred;
    for (const button of buttons) button.disabled = !isReady;
    if (isReady && document.activeElement === document.body) this.blurred?.focus({ preventScroll: true });  // it was disabled meanwhile
    if (isReady) this.blurred = null;
    this.cancelButton.hidden = !this.checking;
    this.copyButton.disabled = !this.preview?.command;
  }

  showError(error) {
    this.report.replaceChildren(this.studio.makeError(error));
  }

  // --- check and start
  async check() {
    const request = this.collect(), { check_command: command } = this.preview;
    this.checking = new AbortController();
    this.enable();
    this.report.replaceChildren(make("p", { class: "new-busy", role: "status" }, "Reading the data …"));
    try {
      const report = await this.studio.send("/api/check", request, { signal: this.checking.signal });
      this.report.replaceChildren(makeReport(report, this.studio));
      const isValid = !report.errors?.length;
      this.checked = command;
      this.validated = isValid ? command : "";
      if (isValid && report.task && report.task !== this.detected.task) {
        this.detected = { data: request.values.data, task: report.task };
        await this.showCommand();
      }
      return isValid;
    } catch (error) {
      if (error.name === "AbortError") this.report.replaceChildren();
      else this.showError(error);
      return false;
    } finally {
      this.checking = null;
      this.enable();
    }
  }

  async start() {
    const request = this.collect();
    if (this.validated !== this.preview.check_command && !await this.check()) return;
    try {
      const job = await this.studio.send("/api/jobs", { ...request, detected_task: this.collect().detected_task });
      this.studio.showMessage(`${job.run} is starting.`);
      this.name.set(undefined);
      await this.jobs.refresh();
      this.schedule(0);
    } catch (error) {
      this.showError(error);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.checking?.abort();
    this.jobs.close();
  }
}
