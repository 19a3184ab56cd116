// Wide tables scroll, also by the keyboard. The theme wraps them after the page was loaded.
function reachable() {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    part.tabIndex = 0;
  }
}
reachable();
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
