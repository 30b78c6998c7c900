//! The report as one HTML page without external resources. Only its interactive timeline needs
//! scripts.

mod data;
mod fencing;
mod findings;
mod html;
mod latency;
mod layout;
mod nemeses;
mod outcomes;
#[cfg(test)]
mod samples;
mod setting;
mod still;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

use crate::record::Run;
use html::{Html, Text};
use layout::Layout;
use nemeses::Nemesis;
use verdict::Verdict;

const STYLE: &str = include_str!("page/style.css");
const CONTROLS: &str = include_str!("page/controls.html");
/// The page's scripts: data model, drawing, tooltip, and controls.
const SCRIPT: [&str; 4] = [
    include_str!("page/model.js"),
    include_str!("page/paint.js"),
    include_str!("page/hover.js"),
    include_str!("page/controls.js"),
];
/// A content security policy that blocks all requests, in case text from the run injects markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

pub(crate) fn render(run: &Run) -> String {
    let nemeses = nemeses::of(run);
    let layout = Layout::of(run, &nemeses);
    let mut out = Html::default();
    out.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{} – quorlock torture</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        Text(Verdict::of(run).words(run))
    ));
    verdict::section(&mut out, run);
    findings::section(&mut out, run);
    fencing::section(&mut out, run);
    timeline(&mut out, &layout, &nemeses);
    nemeses::section(&mut out, run, &nemeses);
    latency::section(&mut out, &run.calls);
    outcomes::section(&mut out, &run.calls);
    setting::section(&mut out, &run.setting);
    out.put(format_args!(
        "</main>\n<script type=\"application/json\" id=\"run\">{}</script>\n<script>\n(() => {{\n\
         \"use strict\";\n",
        data::json(&layout, &nemeses)
    ));
    for part in SCRIPT {
        out.raw(part);
    }
    out.raw("})();\n</script>\n</body>\n</html>\n");
    out.finish()
}

fn timeline(out: &mut Html, layout: &Layout<'_>, nemeses: &[Nemesis<'_>]) {
    out.raw("<section id=\"timeline\">\n<h2>Timeline</h2>\n");
    if layout.rows.is_empty() && layout.targets.is_empty() {
        out.raw("<p>No data.</p>\n</section>\n");
        return;
    }
    out.raw("<ul class=\"legend\" aria-label=\"Legend\">\n");
    for nemesis in nemeses {
        let promise = if nemesis.is_guaranteed { "" } else { " (outside the guarantee)" };
        let (key, name) = (nemeses::legend_key(nemesis), Text(nemesis.name));
        out.put(format_args!("<li>{key}{name}{promise}</li>\n"));
    }
    out.raw(
        "<li><span class=\"key held\" aria-hidden=\"true\"></span>held</li>\n\
         <li class=\"live\"><span class=\"key ran-out\" aria-hidden=\"true\"></span>expired or lost\
         </li>\n<li><span class=\"key overlap\" aria-hidden=\"true\">▼</span>overlap</li>\n</ul>\n",
    );
    still::picture(out, layout, nemeses);
    out.raw(CONTROLS);
    out.raw("</section>\n");
}
