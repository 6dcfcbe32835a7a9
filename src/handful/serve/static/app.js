// Which page this is: a project, or the list of all.
import { start } from "./start.js";
import { studio } from "./studio.js";

const root = document.getElementById("root");
const found = location.pathname.match(/^\/p\/([0-9a-f]{12})$/);
if (found) studio(root, found[1]);
else start(root);
