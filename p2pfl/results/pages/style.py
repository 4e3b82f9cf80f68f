"""The style sheet of all pages: readable on a phone, in the dark, and on paper."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy of a page: it loads nothing and runs nothing."""

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1c1f24; --faint: #5b6470; --rule: #d5dae1; --soft: #f4f6f8;
  --good: #00684a; --bad: #b3261e; --warn: #7a4b00; --c0: #0067a6; --c1: #b84a00; --c2: #007a5a; --c3: #a0457f;
  --c4: #6b5b00; --c5: #4a5fc1; --c6: #8a1c1c; --c7: #30636b; --shadow: #1c1f2438 }
@media (prefers-color-scheme: dark) { :root { --ground: #15181c; --text: #e6e9ed; --faint: #a3adb9; --rule: #3a424c;
  --soft: #1f242a; --good: #5fd0a5; --bad: #ff9a90; --warn: #f0b85a; --c0: #56b4e9; --c1: #ff9d5c; --c2: #4fd0a7;
  --c3: #e69bc9; --c4: #e5d35a; --c5: #a3b1ff; --c6: #ff8d8d; --c7: #8ccdd6; --shadow: #000c } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.25rem 1rem 3rem; max-width: 62rem; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  overflow-wrap: break-word }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem } h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem;
  padding-bottom: .25rem; border-bottom: 1px solid var(--rule) } h3 { font-size: 1rem; margin: 1.25rem 0 .25rem }
p { margin: .5rem 0; max-width: 46rem } .small, figcaption, caption, .legend { color: var(--faint); font-size: .875rem }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; margin: .75rem 0 0;
  font-size: .9rem } a { color: var(--c0) }
.verdict { border-left: 5px solid var(--c0); background: var(--soft); padding: .75rem 1rem; margin: 1rem 0;
  font-size: 1.05rem; max-width: none } .alarm { border-color: var(--bad) } .warning { border-color: var(--warn) }
.verdict p { margin: .25rem 0 } .verdict strong:first-child { margin-right: .25rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.25rem 1.5rem;
  margin: 1rem 0 } figure { margin: 0; min-width: 0; max-width: 30rem }
.graph { flex: 1 1 20rem; max-width: 26rem }
.one figure { max-width: 42rem }
figcaption { color: var(--text); font-weight: 600 }
svg.chart { display: block; width: 100%; height: auto } svg text { fill: var(--faint);
  font: 13px system-ui, sans-serif; paint-order: stroke; stroke: var(--ground); stroke-width: 4px }
svg .axis { stroke: var(--faint); fill: none } svg .grid { stroke: var(--rule); fill: none }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round } svg .band { stroke: none; opacity: .16 }
svg .dash1 { stroke-dasharray: 7 4 } svg .dash2 { stroke-dasharray: 2 4 } svg .dash3 { stroke-dasharray: 9 3 2 3 }
.c0 { stroke: var(--c0); fill: var(--c0) } .c1 { stroke: var(--c1); fill: var(--c1) }
.c2 { stroke: var(--c2); fill: var(--c2) } .c3 { stroke: var(--c3); fill: var(--c3) }
.c4 { stroke: var(--c4); fill: var(--c4) } .c5 { stroke: var(--c5); fill: var(--c5) }
.c6 { stroke: var(--c6); fill: var(--c6) } .c7 { stroke: var(--c7); fill: var(--c7) }
svg rect { stroke: none } .matrix td, .matrix thead th { padding-left: .5rem; padding-right: .5rem }
.matrix td { --shade: var(--c0) } .matrix td.minus { --shade: var(--c1) }
.m1 { background: color-mix(in srgb, var(--shade) 12%, transparent) }
.m2 { background: color-mix(in srgb, var(--shade) 24%, transparent) }
.m3 { background: color-mix(in srgb, var(--shade) 36%, transparent) }
.m4 { background: color-mix(in srgb, var(--shade) 48%, transparent) }
.plain { stroke: var(--faint); fill: var(--faint) }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1rem; margin: .25rem 0 0; padding: 0 }
.legend svg { width: 26px; height: 10px; margin-right: .35rem; vertical-align: middle }
.lanes { max-width: none; margin: .75rem 0 } .lanes rect { stroke: none } .lanes svg.chart { min-width: 36rem }
.wide { overflow-x: auto; margin: .75rem 0; background: /* a shadow where a table goes on */
  linear-gradient(to left, var(--ground) 1.2rem, transparent) right / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--shadow), transparent) right / .9rem 100% no-repeat scroll }
.wide:focus-visible { outline: 2px solid var(--c0) }
.beside { display: flex; flex-wrap: wrap; gap: 0 3.5rem; align-items: flex-start }
.beside > * { min-width: 0 } .beside > .wide { flex: 0 1 auto }
table { border-collapse: collapse; font-size: .925rem; min-width: min(18rem, 100%) }
caption { text-align: left; padding-bottom: .3rem }
th, td { padding: .3rem 1rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule) }
thead th { border-bottom: 2px solid var(--rule); font-weight: 600 } .n { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap } tbody th { font-weight: 400 }
tr.total th, tr.total td { font-weight: 600 } .best { font-weight: 700 } .good { color: var(--good) }
.bad { color: var(--bad) } .warn { color: var(--warn) } code, pre {
  font: .875em ui-monospace, "Liberation Mono", monospace }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; white-space: pre-wrap; margin: .5rem 0 }
summary { cursor: pointer; color: var(--c0) } .events { padding-left: 1.1rem } .events li { margin: .3rem 0 }
.signed { display: grid; grid-template-columns: 2fr 1fr 2fr; gap: 1.5rem; margin: 2.25rem 0 0; max-width: 46rem }
.signed div { border-top: 1px solid var(--text); font-size: .875rem; color: var(--faint); padding-top: .2rem }
@media (max-width: 30rem) { body { padding: 1rem .75rem 2rem } h1 { font-size: 1.4rem } th, td { padding-right: .75rem }
  .signed { grid-template-columns: 1fr; gap: 2.25rem } }
@page { size: A4; margin: 16mm 14mm }
@media print { :root { color-scheme: light; --ground: #fff; --text: #000; --faint: #444; --rule: #bbb; --soft: #fff;
  --good: #00684a; --bad: #b3261e; --warn: #7a4b00; --c0: #0067a6; --c1: #b84a00; --c2: #007a5a; --c3: #a0457f;
  --c4: #6b5b00; --c5: #4a5fc1; --c6: #8a1c1c; --c7: #30636b }
  body { max-width: none; padding: 0; font-size: 10.5pt } nav { display: none }
  .wide { overflow: visible; background: none }
  figure, tr, .verdict, .signed { break-inside: avoid } h2, h3, caption { break-after: avoid }
  thead { display: table-header-group }
  .figures { grid-template-columns: 1fr 1fr } pre { border: 1px solid #bbb } }
"""
