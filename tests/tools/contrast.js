// The lowest contrast of the letters that are shown with what is behind them, by WCAG 2.
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = item => {
    const colour = getComputedStyle(item).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(item.parentElement) : colour;
  };
  const ratio = item => {
    const [low, high] = [light(getComputedStyle(item).color), light(behind(item))].sort((a, b) => a - b);
    return (high + .05) / (low + .05);
  };
  return Math.min(...[...document.querySelectorAll("main *")].filter(item => item.innerText?.trim()).map(ratio));
})()
