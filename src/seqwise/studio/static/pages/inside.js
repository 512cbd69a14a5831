// To be written.
import { make } from "../../../page/components/elements.js";

export function show(element, parameters, studio) {
  element.append(make("h1", {}, "inside"), make("p", {}, studio.rows.listTop().length + " runs"));
}
