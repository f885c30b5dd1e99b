"""The style sheet of the audit's page: light and dark, wide and narrow, screen and paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:light-dark(#faf9f7,#131619);--panel:light-dark(#fff,#1a1e22);
--ink:light-dark(#1d2126,#e9e7e2);--muted:light-dark(#5b636c,#a3abb3);--line:light-dark(#e5e2dc,#2a3036);
--track:light-dark(#ebe8e2,#2a3036);--delivered:light-dark(#7db8d8,#2f7ba3);
--owed:light-dark(#1d2126,#f2efe9);
--demand:light-dark(#8a5300,#efb659);--unfunded:light-dark(#b3568b,#d88ab6);
--good:light-dark(#1b6e53,#64c7a3);
--warn:light-dark(#8a5300,#efb659);--bad:light-dark(#a8321f,#f08a76);--accent:light-dark(#0b6291,#6cbbe6)}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;letter-spacing:-.02em;margin:0 0 2px}
h2{font-size:18px;margin:38px 0 6px}
h3{font-size:14px;margin:0 0 6px;overflow-wrap:anywhere}
p{margin:6px 0;max-width:76ch}
.muted,.none,small{color:var(--muted)}
.lead{font-size:17px;margin:14px 0 18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:16px 0}
.tile,.card{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.tile b{display:block;font-size:23px;letter-spacing:-.02em;line-height:1.25}
.tile span{color:var(--muted);font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:12px;
margin:12px 0}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;background:var(--panel)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:7px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th:first-child,td:first-child,td.text,th.text{text-align:left}
td.text{white-space:normal;overflow-wrap:anywhere;min-width:180px}
th{color:var(--muted);font-weight:550;font-size:12.5px}
tr:last-child td{border-bottom:0}
.good{color:var(--good)}.fair{color:var(--warn)}.poor{color:var(--bad);font-weight:600}
.bar{position:relative;display:inline-block;width:150px;height:11px;background:var(--track);
border-radius:3px;vertical-align:middle}
.bar i{position:absolute;inset:0 auto 0 0;border-radius:3px;background:var(--delivered)}
.bar i.unfunded{background:var(--unfunded)}.bar i.demand{background:var(--demand)}
.bar b{position:absolute;top:-3px;bottom:-3px;width:2px;margin-left:-1px;background:var(--owed)}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:10.5px;fill:var(--muted)}
svg .grid{stroke:var(--line);stroke-width:1}
svg polygon.delivered{fill:var(--delivered)}
svg polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}
svg polyline.owed{stroke:var(--owed)}
svg polyline.demand{stroke:var(--demand);stroke-dasharray:3 3;stroke-width:1.2}
svg .range{stroke:var(--delivered);stroke-width:5;stroke-linecap:round}
svg .p50{fill:var(--accent)}
svg .p90{fill:var(--panel);stroke:var(--accent);stroke-width:2}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--muted);font-size:13px;list-style:none;padding:0;
margin:8px 0}
.legend i{display:inline-block;width:16px;height:10px;margin-right:6px;border-radius:2px;
vertical-align:baseline}
.legend .delivered{background:var(--delivered)}
.legend .owed{height:2px;background:var(--owed);vertical-align:middle}
.legend .demand{height:0;border-top:2px dashed var(--demand);border-radius:0;vertical-align:middle}
details{margin:4px 0;font-size:13px}
summary{cursor:pointer;color:var(--accent)}
code{font:12.5px ui-monospace,"DejaVu Sans Mono","Liberation Mono",monospace;overflow-wrap:anywhere}
@media (max-width:640px){main{padding:18px 12px 40px}.bar{width:90px}h1{font-size:22px}}
@media print{:root{color-scheme:light}.card,.tile,tr{break-inside:avoid}}
"""
