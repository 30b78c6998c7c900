//! The outcomes section: how often each kind of call had each outcome.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::{
    html::{Html, Text},
    latency,
    words::{count, share},
};
use crate::record::{Call, Verb};

pub(super) fn section(out: &mut Html, calls: &[Call]) {
    out.raw("<section>\n<h2>Outcomes</h2>\n");
    if calls.is_empty() {
        out.raw("<p>No calls were made.</p>\n</section>\n");
        return;
    }
    let mut by_verb: BTreeMap<Verb, HashMap<&str, u64>> = BTreeMap::new();
    for call in calls {
        *by_verb.entry(call.verb).or_default().entry(&call.outcome).or_default() += 1;
    }
    out.begin_table("By call", 2, &["Call", "Outcome", "Count", "Share"]);
    for (verb, outcomes) in by_verb {
        let whole: u64 = outcomes.values().sum();
        let mut outcomes: Vec<_> = outcomes.into_iter().collect();
        outcomes.sort_unstable_by_key(|(outcome, n)| (Reverse(*n), *outcome));
        let rows = outcomes.len();
        for (nth, (outcome, n)) in outcomes.into_iter().enumerate() {
            out.raw("<tr>");
            if nth == 0 {
                let name = latency::name(verb);
                out.put(format_args!("<th scope=\"row\" rowspan=\"{rows}\">{name}</th>"));
            }
            out.put(format_args!(
                "<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}<svg class=\"bar\" \
                 viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
                 <rect class=\"hold\" width=\"{}\" height=\"8\"/></svg></td></tr>",
                Text(outcome),
                count(n),
                share(n, whole),
                (n * 100).div_ceil(whole),
            ));
        }
    }
    out.end_table();
    out.raw("</section>\n");
}
