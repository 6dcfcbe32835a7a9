// Light, dark, or whatever the system says.
import { iconButton } from "./dom.js";

export function themeButton() {
  const flip = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  };
  return iconButton("Light or dark", "theme", flip, { class: "button round theme" });
}
