/** The style sheet of the HTML report: light and dark by the reader's setting, nothing loaded from elsewhere. */
export const HTML_STYLE = `
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #59636e; --line: #d1d9e0; --shade: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; --add: #dafbe1; --del: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9198a1; --line: #3d444d;
  --shade: #151b23; --good: #3fb950; --bad: #f85149; --warn: #d29922; --add: #12361f; --del: #3f1518; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 110rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 0; }
h4 { font-size: .9rem; margin: 1rem 0 .25rem; }
.soft { color: var(--soft); }
code, pre { font: 13px/1.45 ui-monospace, monospace; } code { white-space: pre-wrap; overflow-wrap: anywhere; }
h1 code, h3 code { font-size: .95em; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.better { color: var(--good); font-weight: 600; } .worse { color: var(--bad); font-weight: 600; } .unscored { color: var(--warn); font-weight: 600; }
.columns { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(22rem, 1fr); gap: 1rem; overflow-x: auto; align-items: start; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 1rem; min-width: 0; }
.card.winner { border-color: var(--good); box-shadow: 0 0 0 1px var(--good); }
ul { margin: .25rem 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; } summary { padding: .35rem .6rem; cursor: pointer; background: var(--shade); border-radius: 6px; }
pre { margin: 0; padding: .5rem 0; overflow-x: auto; } pre span { display: block; padding: 0 .6rem; min-width: max-content; }
.add { background: var(--add); } .del { background: var(--del); } .hunk { color: var(--soft); }
`
