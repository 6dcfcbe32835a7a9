// A thumbnail opens large with its path; a cell of the confusion matrix opens the images that it counts.
(() => {
  const dialog = document.querySelector("dialog.viewer");
  const stage = dialog.querySelector(".stage");
  const show = (thumbs, large) => {
    stage.replaceChildren(...thumbs.map((thumb) => {
      const copy = thumb.cloneNode(true);
      copy.classList.remove("small");
      copy.classList.toggle("large", large);
      copy.removeAttribute("tabindex");
      return copy;
    }));
    dialog.showModal();
  };
  const opened = (target) => {
    if (target.closest("code, dialog .large")) return;
    const cell = target.closest("button[data-examples]");
    const thumb = target.closest(".thumb[data-example]");
    if (cell) {
      const found = cell.dataset.examples.split(" ").map((key) =>
        document.querySelector(`main .thumb[data-example="${key}"]`));
      show(found.filter(Boolean), false);
    } else if (thumb) {
      show([thumb], true);
    }
  };
  document.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
    else opened(event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches(".thumb")) opened(event.target);
  });
})();
