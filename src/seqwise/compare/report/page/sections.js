// The parts of a report below its head, in their order.
import { makeCosts } from "./costs.js";
import { makeCurves } from "./curves.js";
import { makeExamples } from "./examples.js";
import { makeFairness } from "./fairness.js";
import { makeLeaderboard } from "./leaderboard.js";
import { makePairs } from "./pairs.js";
import { makeSettings } from "./settings.js";
import { makeTradeoff } from "./tradeoff.js";

export const PARTS = {
  leaderboard: makeLeaderboard, curves: makeCurves, tradeoff: makeTradeoff, costs: makeCosts,
  pairs: makePairs, examples: makeExamples, fairness: makeFairness, settings: makeSettings,
};
export const makeParts = (report) => Object.values(PARTS).map((makePart) => makePart(report));
