"use strict";
for (const cut of document.querySelectorAll("input.cut")) {
  const move = () => cut.parentElement.style.setProperty("--cut", cut.value + "%");
  cut.addEventListener("input", move);
  move();
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of closed) part.open = false;
});
