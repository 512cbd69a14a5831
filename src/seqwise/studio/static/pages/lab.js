// To be written.
import { make } from "../../../page/components/elements.js";

export function show(element, parameters, studio) {
  element.append(make("h1", {}, "lab"), make("p", {}, studio.rows.listTop().length + " runs"));
}
